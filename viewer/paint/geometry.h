// Places the parts of the picture, in pixels: a function of its size and of what is shown.
#pragma once

#include <vector>

#include "viewer/paint/picture.h"
#include "viewer/state/view_state.h"

namespace shardlens::viewer {

struct CardGeometry {
  Box card;
  Box title;   // name, strategy, peak, change
  Box y_axis;  // texts left of the plot
  Box plot;
  Box residual;  // measured less planned; without height if there is no plan
  Box bars;      // steps and phases; without height if it is not shown
  Box ribbon;    // actions
  Box x_axis;
};

struct Geometry {
  Box header;
  Box legend;
  size_t legend_lines = 1;  // which divide it evenly
  Box messages;
  Box minimap;
  Box what_if;  // without width if it is not shown
  Box alive;
  Box details;  // of what is selected; without width if nothing is
  Box tree;     // in the table's place; without height if it is not shown
  Box table;
  std::vector<CardGeometry> cards;  // of the lanes that have room, from `first_lane` on
  size_t first_lane = 0;
  size_t lane_columns = 1;  // cards in a line
  size_t lane_lines = 1;    // lines that have room,
  size_t all_lines = 1;     // of all
  Box lane_bar;             // where they are scrolled; without width if all have room
  std::vector<Box> folded;  // of the folded lanes, or of as many as have room
};

struct GeometryInput {
  int width = 0;
  int height = 0;
  int top = 0;
  double scale = 1;
  size_t runs = 0;
  size_t lanes = 0;   // that have a card,
  size_t folded = 0;  // and that have a line
  size_t table_rows = 0;
  size_t tree_rows = 0;     // below the tree's head
  size_t details_rows = 0;  // of what is selected
  size_t messages = 0;
  size_t legend_lines = 1;
  bool has_plans = false;
};

Geometry geometry_of(const GeometryInput& input, const ViewState& state);

}  // namespace shardlens::viewer
