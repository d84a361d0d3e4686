// Draws lanes as images: each column of pixels shows its highest moment, stacked by category. The
// processor rasters them, since software OpenGL takes longer for single columns, and since the
// picture is then the same bytes on every machine.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "viewer/model/compare.h"
#include "viewer/model/lane.h"
#include "viewer/paint/picture.h"
#include "viewer/paint/theme.h"

namespace shardlens::viewer {

using Columns = std::vector<std::optional<Extent>>;
using DifferenceColumns = std::vector<std::optional<CategoryBytes>>;

struct LaneStyle {
  int height = 0;           // pixels
  double top_bytes = 1;     // bytes at the upper edge
  double bottom_bytes = 0;  // bytes at the lower edge
  Theme theme = Theme::light;
  uint32_t hidden_categories = 0;
  int hatch_period = 0;                       // pixels; 0: no hatches
  int edge = 1;                               // width in pixels of the line over the stack
  std::optional<Category> marked_category{};  // its band gets an outline
  std::optional<uint32_t> marked_block{};     // this block gets one, too
};

double pixels_per_byte(const LaneStyle& style);
/// Returns the height of 0 bytes, in pixels from below; negative if the lower edge is above 0
/// bytes.
double ground_of(const LaneStyle& style);

/// A part of a column, in pixels from below.
struct ColumnPart {
  double low = 0;
  double high = 0;
};

/// Draws an outline around parts of columns: a line along both ends, and where the parts begin and
/// end.
void outline_parts(Image& image, const std::vector<std::optional<ColumnPart>>& parts,
                   const LaneStyle& style);

/// Returns the part of a column that a category takes; nothing if it has no bytes in the column.
std::optional<ColumnPart> part_of_category(const Extent& column, const LaneStyle& style,
                                           Category category);
/// Returns the category at a height of a column, which counts from below in pixels.
std::optional<Category> category_at(const Extent& column, const LaneStyle& style, double y);

/// Makes an image of `width` transparent columns.
Image empty_image(size_t width, const LaneStyle& style);

bool is_shown(const LaneStyle& style, profiler::Category category);

/// Draws the stack of every column, with the minimum of the column as a faint line. Hidden
/// categories are left out of the stack.
Image stack_image(const Columns& columns, const LaneStyle& style);

/// Draws growth upwards from the middle and shrinkage downwards; the upper and the lower edge stand
/// for top_bytes each.
Image difference_image(const DifferenceColumns& columns, const LaneStyle& style);

/// Draws a bar for each column from the middle: upwards for positive bytes, downwards for negative;
/// the edges stand for top_bytes each. A bar other than 0 is at least a pixel high.
Image residual_image(const std::vector<std::optional<int64_t>>& bytes, const LaneStyle& style);

/// Draws several ranks: a ribbon from the minimum to the maximum, and the median as a line.
Image folded_image(const std::vector<Columns>& ranks, const LaneStyle& style);

/// Draws a line along values that may be missing, over an image of the same height.
void draw_outline(Image& image, const std::vector<std::optional<int64_t>>& bytes,
                  const LaneStyle& style, const Color& color, int dash);

/// Returns the bytes of each column without the hidden categories.
std::vector<std::optional<int64_t>> totals_of(const Columns& columns, uint32_t hidden_categories);

}  // namespace shardlens::viewer
