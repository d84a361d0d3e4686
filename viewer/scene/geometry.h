// Places the parts of the picture, in pixels: a function of its size and of what is shown.
#pragma once

#include <vector>

#include "viewer/scene/picture.h"
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
  Box messages;
  Box minimap;
  Box what_if;  // without width if it is not shown
  Box alive;
  Box details;  // of what is selected; without width if nothing is
  Box tree;     // in the table's place; without height if it is not shown
  Box table;
  std::vector<CardGeometry> cards;  // one for each run; a single one in the overlay
};

struct GeometryInput {
  int width = 0;
  int height = 0;
  int top = 0;
  double scale = 1;
  size_t runs = 0;
  size_t table_rows = 0;
  size_t messages = 0;
  bool has_plans = false;
};

Geometry geometry_of(const GeometryInput& input, const ViewState& state);

}  // namespace shardlens::viewer
