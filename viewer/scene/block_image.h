// Draws single allocations as images: stacked on what was alive when they were born, or at their
// addresses in memory, where gaps show the cost of fragmentation.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "viewer/model/lane.h"
#include "viewer/model/warp.h"
#include "viewer/scene/lane_image.h"

namespace shardlens::viewer {

/// Draws the blocks that are at least a pixel high, in order of birth from below; smaller ones lie
/// under them, in a band for each category. `columns` are the lane's, for the same pixels.
Image block_stack_image(const Lane& lane, const Columns& columns, const LaneStyle& style);

/// A point of what block_stack_image draws: the block there, also if it is too small to be drawn.
struct StackPoint {
  std::optional<uint32_t> block;
  Category category{};
};

/// Returns what is at a height of a column, which counts from below in pixels; nothing above the
/// stack.
std::optional<StackPoint> stack_point(const Lane& lane, const Extent& column,
                                      const LaneStyle& style, double y);

/// True if a lane's blocks are coloured by place, because no recording of such memory knows
/// categories: snapshots of PyTorch, segments.
bool are_colored_by_place(const Lane& lane);
/// Returns the colour of a place, the same in all pictures.
Color place_color(std::string_view place);

/// A range of addresses that is shown. Large holes between ranges are left out.
struct ShownAddresses {
  uint64_t begin = 0;
  uint64_t end = 0;
};

struct AddressPicture {
  Image image;
  std::vector<ShownAddresses> ranges;  // from the bottom
  int64_t shown_bytes = 0;             // of all ranges
};

/// Draws every block that lives at least half a pixel as one rectangle, over the x of `range`. A
/// segment is pale where no tensor lies for half a pixel.
AddressPicture address_image(const Lane& lane, const Warp& warp, const Range& range, int width,
                             const LaneStyle& style);

/// Returns the block that such a picture shows at a point, in pixels from the left and from below;
/// nothing in a gap.
std::optional<uint32_t> block_at_address(const Lane& lane, const Warp& warp, const Range& range,
                                         int width, const LaneStyle& style, double x, double y);

}  // namespace shardlens::viewer
