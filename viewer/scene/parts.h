// The parts of the picture, with the types that all of them need. Internal to scene/.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "viewer/paint/geometry.h"
#include "viewer/paint/painter.h"
#include "viewer/scene/scene.h"

namespace shardlens::viewer {

/// A run as it is shown: its rank, and the moment that the tables show.
struct ShownRun {
  size_t index = 0;
  const Run* run = nullptr;
  size_t rank = 0;
  const RankLane* lane = nullptr;
  const Warp* warp = nullptr;
  const JoinedWarp* plan_warp = nullptr;  // of the joined plan; null without a plan
  int64_t change = kBeforeAll;            // its peak, or the change at the cursor
  int64_t time_ns = 0;                    // of that moment
  CategoryBytes bytes{};                  // at that moment
  CategoryBytes drawn{};                  // the most that the view draws of each category
  int64_t drawn_most = 0;                 // and of all shown categories together
  int64_t total = 0;
  int64_t reserved_peak = 0;  // 0: not recorded
  size_t base = 0;            // the run it is compared with; itself: the baseline
  bool has_others = false;    // true if other runs show the same memory
  bool is_folded = false;
};

struct Scene {
  const SceneInput& in;
  Painter& paint;
  ImageCache& cache;
  Geometry geometry;
  std::vector<ShownRun> shown;     // all runs, as they were opened
  std::vector<size_t> cards{};     // the runs whose cards fit, in the order of lanes
  std::vector<size_t> compared{};  // the runs that are drawn in any way, as in the table
  Range view;
  std::map<size_t, double> difference_reach{};  // of the runs with a base, once known
  std::vector<Box> labels{};                    // on the plot that is being drawn

  const ViewState& state() const { return in.state; }
  const ShownRun& focus() const { return shown[std::min(in.state.focus, shown.size() - 1)]; }
  const ShownRun& base_of(const ShownRun& one) const { return shown[one.base]; }
  /// True for the baseline of the memory that the run shows.
  static bool is_baseline(const ShownRun& one) { return one.index == one.base; }
  float x_of(const Box& plot, double x) const {
    return plot.x + static_cast<float>((x - view.begin) / view.length()) * plot.w;
  }
};

std::vector<ShownRun> shown_of(const SceneInput& input);

/// Returns the drawn columns of a rank, as many as its plot is wide.
const DrawnColumns& drawn_columns(const SceneInput& input, ImageCache& cache, size_t run,
                                  size_t rank, int width);

/// The runs by how their lanes are shown, each in the order of lanes.
struct LaneLists {
  std::vector<size_t> cards;  // in the overlay only the baselines
  std::vector<size_t> folded;
};
LaneLists lane_lists(const SceneInput& input);

/// Places the parts of the picture around a table with this number of rows.
Geometry place_parts(const SceneInput& input, size_t rows, size_t legend_lines = 1);

/// Notes in every run in view what is drawn for it.
void find_drawn(const SceneInput& input, ImageCache& cache, std::vector<ShownRun>& shown);

/// Returns the bytes of the categories that the state shows.
int64_t shown_bytes(const ViewState& state, const CategoryBytes& bytes);

/// Returns the most bytes that any run has of a category, at its moment or in what is drawn.
int64_t most_bytes(const std::vector<ShownRun>& shown, Category category);

/// True for what a run decides and keeps in all steps: parameters and the optimizer's state. If not
/// everything fits, these are shown first.
bool is_decisive(Category category);

/// True if any run cuts its parameters into shards.
bool have_shards(const std::vector<ShownRun>& shown);

/// Returns the categories that any run has at the shown moments or in what is drawn, in stacking
/// order from the top.
std::vector<Category> used_categories(const std::vector<ShownRun>& shown);

/// The bytes at the lower and the upper edge of a plot.
struct YAxis {
  double bottom = 0;
  double top = 0;  // 0: the plot has no y axis

  float y_of(const Box& plot, double bytes) const {
    return plot.bottom() - static_cast<float>((bytes - bottom) / (top - bottom)) * plot.h;
  }
  bool contains(double bytes) const { return top > 0 && bytes >= bottom && bytes <= top; }
};

/// Returns the y axis of a run's plot. Runs of device memory and of host memory do not share it. If
/// categories are hidden, the axis fits what is drawn of the others.
YAxis y_axis_of(const ViewState& state, const std::vector<ShownRun>& shown, const ShownRun& one);

/// Returns the style by which a run's plot is read: its heights, and the hidden categories.
LaneStyle read_style(const ViewState& state, const std::vector<ShownRun>& shown,
                     const ShownRun& one, const Box& plot);

/// Returns the colour of a growth: more is drawn in another colour than less.
const Color& color_of_change(const Colors& colors, int64_t growth);

/// Returns the period of hatches in pixels; 0 if categories have no hatches.
int hatch_period(const Scene& scene);

/// Each returns a part of moment_text; the first two are empty if nothing is known.
std::string stretch_text(const Lane& lane, int64_t change);
std::string action_text(const RankLane& rank, int64_t change);
std::string clock_text(const Lane& lane, int64_t change, int digits = 3);
std::string clock_text_at(const Lane& lane, int64_t time_ns, int digits);

/// Returns how many lines the overview has.
size_t overview_lines(const SceneInput& input);
void draw_overview(Scene& scene);

/// Returns a place for a label on a plot that covers no other label: the wanted one, or the nearest
/// above or below it; nothing if there is none. The place is taken from then on.
std::optional<Box> free_place(Scene& scene, const Box& plot, const Box& wanted);

/// Draws bands, blocks, addresses, folds, differences or outlines, depending on the state.
void draw_plot(Scene& scene, const ShownRun& one, const CardGeometry& card);
/// Draws grid and axes. The y axis of a difference goes from -top to top.
void draw_axes(Scene& scene, const CardGeometry& card, const YAxis& y_axis, bool is_signed);
void draw_marks(Scene& scene, const ShownRun& one, const CardGeometry& card, const YAxis& y_axis);
/// Draws the plan's outline over a plot's image, if the run has a plan.
void outline_plan(const Scene& scene, const ShownRun& one, const LaneStyle& style, Image& image);
/// Draws the strip under the plot: the measured bytes minus the planned.
void draw_residual(Scene& scene, const ShownRun& one, const CardGeometry& card);
/// Draws the panel in which the user changes a run's configuration.
void draw_what_if(Scene& scene);
/// Draws the levers of the program that the panel is about, and how to run them.
void draw_levers(Scene& scene, const WhatIfEdit& what_if, const ProgramLevers& levers, Box box);
void draw_badge(Painter& paint, Box& line, std::string_view text);
void draw_card(Scene& scene, const ShownRun& one, const CardGeometry& card);
/// Draws the buttons that fold and close a lane, at the right of a line.
void draw_lane_buttons(Scene& scene, const ShownRun& one, Box& line);
/// Draws the lines of folded lanes, and the bar that scrolls lanes.
void draw_folded_lanes(Scene& scene);
void draw_lane_bar(Scene& scene);
void draw_ribbon(Scene& scene, const ShownRun& one, const CardGeometry& card);
/// Returns the innermost action of a row of the ribbon (the lower one is communication) at a time;
/// null if none ran.
const Span* ribbon_span(const Lane& lane, const ActionNames& names, int64_t time_ns,
                        bool is_lower_row);
/// Draws what ran on the streams of the GPU.
void draw_gpu_work(Scene& scene, const ShownRun& one, const CardGeometry& card);
/// Returns what an image of rows below a plot depends on: another key is another image.
std::string key_of_rows(const Scene& scene, const ShownRun& one, int width);
/// Returns the time of a run at a part of the plot's width, from 0 to 1; nothing in a gap.
std::optional<int64_t> time_at(const Scene& scene, const ShownRun& one, double part);
void draw_bars(Scene& scene, const ShownRun& one, const CardGeometry& card);
/// Draws the tabs of the panels that have no room around the lanes.
void draw_tabs(Scene& scene);
void draw_header(Scene& scene);
/// Returns how many lines the legend needs in its width, three at most.
size_t legend_lines(Scene& scene);
void draw_legend(Scene& scene);
void draw_messages(Scene& scene);
void draw_minimap(Scene& scene);
void draw_table(Scene& scene);
void draw_alive(Scene& scene);
/// Draws the selection: the facts of a block, and its stack.
void draw_details(Scene& scene);
/// Draws the flame graph or the list of the tree.
void draw_tree(Scene& scene);

/// Returns the number of rows of the table besides its head: all, categories, reserved, headroom.
size_t table_rows(const std::vector<ShownRun>& shown);

}  // namespace shardlens::viewer
