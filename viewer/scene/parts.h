// The parts of the picture, with the types that all of them need. Internal to scene/.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "viewer/scene/geometry.h"
#include "viewer/scene/painter.h"
#include "viewer/scene/scene.h"

namespace shardlens::viewer {

/// A run as it is shown: its rank, and the moment that the tables are about.
struct Shown {
  size_t index = 0;
  const Run* run = nullptr;
  size_t rank = 0;
  const RankLane* lane = nullptr;
  const Warp* warp = nullptr;
  const JoinedWarp* plan_warp = nullptr;  // of the joined plan; null: there is none
  int64_t change = kBeforeAll;            // its peak, or the change at the cursor
  CategoryBytes bytes{};                  // at that moment
  CategoryBytes drawn{};                  // the most that is drawn of each category in the view
  int64_t total = 0;
  int64_t reserved_peak = 0;  // 0: not recorded
};

struct Scene {
  const SceneInput& in;
  Painter& paint;
  ImageCache& cache;
  Geometry geometry;
  std::vector<Shown> shown;
  Range view;
  std::optional<double> difference_reach;  // of all strategies, once it is known

  const ViewState& state() const { return in.state; }
  const Shown& baseline() const { return shown[std::min(in.state.baseline, shown.size() - 1)]; }
  const Shown& focus() const { return shown[std::min(in.state.focus, shown.size() - 1)]; }
  bool is_baseline(const Shown& one) const { return one.index == baseline().index; }
  float x_of(const Box& plot, double x) const {
    return plot.x + static_cast<float>((x - view.begin) / view.length()) * plot.w;
  }
};

std::vector<Shown> shown_of(const SceneInput& input);

/// Returns the columns that are drawn of a rank, as many as its plot is wide.
const DrawnColumns& drawn_columns(const SceneInput& input, ImageCache& cache, size_t run,
                                  size_t rank, int width);

/// Notes in every strategy what is drawn of it.
void find_drawn(const SceneInput& input, ImageCache& cache, std::vector<Shown>& shown);

/// Returns the bytes of the categories that the state shows.
int64_t shown_bytes(const ViewState& state, const CategoryBytes& bytes);

/// Returns the most bytes that any strategy has of a category, at its moment or in what is drawn.
int64_t most_bytes(const std::vector<Shown>& shown, Category category);

/// True for what a strategy decides and keeps in all steps: parameters and the optimizer's state.
/// Where there is no room for all, these are shown first.
bool is_decisive(Category category);

/// True if any strategy cuts its parameters into shards.
bool have_shards(const std::vector<Shown>& shown);

/// Returns the categories that any strategy has at the shown moments or in what is drawn, in
/// stacking order from the top.
std::vector<Category> used_categories(const std::vector<Shown>& shown);

/// Returns the run with which a strategy is compared: the baseline, or, if its tensors lie in other
/// memory than the baseline's, the first run like it.
const Shown& compared_with(const Scene& scene, const Shown& one);

/// Returns the bytes at the upper edge of a strategy's plot. Runs of a device's memory and of the
/// host's do not share it. Where categories are hidden it is what is drawn of the others.
double top_bytes_of(const ViewState& state, const std::vector<Shown>& shown, const Shown& one);

/// Returns the period of hatches in pixels; 0 if categories have no hatches.
int hatch_period(const Scene& scene);

/// Each returns a part of what moment_text says; the first two are empty if nothing is known.
std::string stretch_text(const Lane& lane, int64_t change);
std::string action_text(const RankLane& rank, int64_t change);
std::string clock_text(const Lane& lane, int64_t change);

/// Draws bands, blocks, addresses, folds, differences or outlines, as the state wants.
void draw_plot(Scene& scene, const Shown& one, const CardGeometry& card);
/// Draws grid and axes. The y axis goes from 0 to `top_bytes`, or from -top_bytes if `is_signed`; a
/// `top_bytes` of 0 leaves it out.
void draw_axes(Scene& scene, const CardGeometry& card, double top_bytes, bool is_signed);
void draw_marks(Scene& scene, const Shown& one, const CardGeometry& card, double top_bytes);
/// Draws the plan's outline over a plot's image, if the run has a plan.
void outline_plan(const Scene& scene, const Shown& one, const LaneStyle& style, Image& image);
/// Draws the strip under the plot: the measured bytes less the planned.
void draw_residual(Scene& scene, const Shown& one, const CardGeometry& card);
/// Draws the panel in which the user changes a strategy into another.
void draw_what_if(Scene& scene);
void draw_badge(Painter& paint, Box& line, std::string_view text);
void draw_card(Scene& scene, const Shown& one, const CardGeometry& card);
void draw_ribbon(Scene& scene, const Shown& one, const CardGeometry& card);
void draw_bars(Scene& scene, const Shown& one, const CardGeometry& card);
void draw_header(Scene& scene);
void draw_legend(Scene& scene);
void draw_messages(Scene& scene);
void draw_minimap(Scene& scene);
void draw_table(Scene& scene);
void draw_alive(Scene& scene);
/// Draws what is selected: the facts of a block, and its stack.
void draw_details(Scene& scene);
/// Draws the flame graph or the list of the tree.
void draw_tree(Scene& scene);

/// Returns the number of rows of the table beside its head: all, categories, reserved, headroom.
size_t table_rows(const std::vector<Shown>& shown);

}  // namespace shardlens::viewer
