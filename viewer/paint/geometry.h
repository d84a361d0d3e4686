// Places the parts of the picture, in pixels: a function of the picture's size and of what is
// shown.
#pragma once

#include <vector>

#include "viewer/paint/picture.h"
#include "viewer/state/view_state.h"

namespace shardlens::viewer {

/// A window that is lower, in points, has no minimap and a shorter legend.
inline constexpr float kShortWindow = 340;

struct CardGeometry {
  Box card;
  Box title;   // name, strategy, peak, change
  Box y_axis;  // texts to the left of the plot
  Box plot;
  Box residual;  // measured minus planned; no height without a plan
  Box bars;      // steps and phases; no height if not shown
  Box ribbon;    // actions
  Box work;      // of the GPU, a row for each stream
  Box x_axis;
};

struct Geometry {
  Box header;
  Box legend;
  size_t legend_lines = 1;  // which divide the legend evenly
  Box messages;
  Box minimap;
  Box what_if;  // no width if not shown
  Box alive;
  Box details;  // of the selection; no width if nothing is selected
  Box tree;     // in the table's place; no height if not shown
  Box table;
  Box overview;  // in place of the lanes, the tree and the table; no height if not shown
  std::vector<FrontPanel> tabs;  // the lanes, and panels that are shown in their place; or none
  Box tab_line;
  FrontPanel front = FrontPanel::lanes;
  std::vector<CardGeometry> cards;  // of the lanes that fit, from `first_lane` on
  size_t first_lane = 0;
  size_t lane_columns = 1;  // cards per line
  size_t lane_lines = 1;    // lines that fit
  size_t all_lines = 1;     // of all
  Box lane_bar;             // scrolls them; no width if all fit
  std::vector<Box> folded;  // of the folded lanes that fit
};

struct GeometryInput {
  int width = 0;
  int height = 0;
  int top = 0;
  double scale = 1;
  size_t runs = 0;
  size_t lanes = 0;   // with a card
  size_t folded = 0;  // with a line
  size_t table_rows = 0;
  size_t details_rows = 0;  // of what is selected
  size_t messages = 0;
  size_t legend_lines = 1;
  bool is_figure = false;
  bool has_plans = false;
  bool has_actions = true;
  size_t work_rows = 0;  // of streams
};

Geometry geometry_of(const GeometryInput& input, const ViewState& state);

}  // namespace shardlens::viewer
