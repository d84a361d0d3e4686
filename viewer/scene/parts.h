// The parts of the picture, and what all of them need. Internal to scene/.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "viewer/scene/geometry.h"
#include "viewer/scene/painter.h"
#include "viewer/scene/scene.h"

namespace shardlens::viewer {

/// A run as it is shown: its rank, and the moment that tables speak of.
struct Shown {
  size_t index = 0;
  const Run* run = nullptr;
  size_t rank = 0;
  const RankLane* lane = nullptr;
  const Warp* warp = nullptr;
  const JoinedWarp* plan_warp = nullptr;  // of the plan that is joined to it; none: there is none
  int64_t change = kBeforeAll;            // its peak, or what holds at the cursor
  CategoryBytes bytes{};                  // then
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

/// The categories that any strategy has at the moments that are shown, or had at its peak; in
/// stacking order from the top.
std::vector<Category> used_categories(const std::vector<Shown>& shown);

/// What the upper edge of a strategy's plot stands for.
double top_bytes_of(const ViewState& state, const std::vector<Shown>& shown, const Shown& one);

/// In pixels; 0: categories have no hatches.
int hatch_period(const Scene& scene);

/// "step 5, BACKWARD mlp3, at 1.24 s".
std::string moment_text(const RankLane& rank, int64_t change);

/// Bands, blocks, addresses, folds, differences or outlines, as the state wants it.
void draw_plot(Scene& scene, const Shown& one, const CardGeometry& card);
/// Grid and axes; `top_bytes` below 0: from minus to plus.
void draw_axes(Scene& scene, const CardGeometry& card, double top_bytes, bool is_signed);
void draw_marks(Scene& scene, const Shown& one, const CardGeometry& card, double top_bytes);
/// The plan's outline over a plot's image, where the run has a plan.
void outline_plan(const Scene& scene, const Shown& one, const LaneStyle& style, Image& image);
/// Under the plot: what was measured less what was planned.
void draw_residual(Scene& scene, const Shown& one, const CardGeometry& card);
/// The panel in which a strategy is turned into another.
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

/// What the rows of the table are, beside its head: all, categories, reserved, headroom.
size_t table_rows(const std::vector<Shown>& shown);

}  // namespace shardlens::viewer
