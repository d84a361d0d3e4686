// Lanes as images: for every column of pixels the highest moment that it stands for, stacked by
// category. Rastered on the CPU, since drawing single columns costs a software OpenGL more, and so
// that a picture is the same bytes on every machine.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "viewer/model/compare.h"
#include "viewer/model/lane.h"
#include "viewer/scene/picture.h"
#include "viewer/scene/theme.h"

namespace shardlens::viewer {

using Columns = std::vector<std::optional<Extent>>;
using DifferenceColumns = std::vector<std::optional<CategoryBytes>>;

struct LaneStyle {
  int height = 0;        // pixels
  double top_bytes = 1;  // what the upper edge stands for
  Theme theme = Theme::light;
  uint32_t hidden_categories = 0;
  int hatch_period = 0;  // pixels; 0: no hatches
  int edge = 1;          // pixels of the line over the stack
};

/// The stack of every column, with the least of the column as a faint line. Hidden categories are
/// left out of the stack.
Image stack_image(const Columns& columns, const LaneStyle& style);

/// Growth upwards from the middle, what shrank downwards; the edges stand for top_bytes each.
Image difference_image(const DifferenceColumns& columns, const LaneStyle& style);

/// A bar a column from the middle, upwards for more than nothing, downwards for less; the edges
/// stand for top_bytes each. What is not nothing is at least a pixel high.
Image residual_image(const std::vector<std::optional<int64_t>>& bytes, const LaneStyle& style);

/// Of several ranks: from the least to the most as a ribbon, the median as a line.
Image folded_image(const std::vector<Columns>& ranks, const LaneStyle& style);

/// A line along values that may be missing, over an image of the same height.
void draw_outline(Image& image, const std::vector<std::optional<int64_t>>& bytes,
                  const LaneStyle& style, const Color& color, int dash);

/// What the columns show without the hidden categories.
std::vector<std::optional<int64_t>> totals_of(const Columns& columns, uint32_t hidden_categories);

}  // namespace shardlens::viewer
