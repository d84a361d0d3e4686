#include "viewer/scene/block_image.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include "base/units.h"
#include "viewer/paint/axis.h"

namespace shardlens::viewer {

namespace {

constexpr uint64_t kLargeHoleBytes = uint64_t{32} << 20;
constexpr int kSeparator = 3;  // pixels between two ranges of addresses

Color shaded(const Color& color, uint32_t block) {
  // Neighbours of one category differ a little, so that the border between them shows.
  const int lighter = static_cast<int>(block % 3) * 14;
  const auto add = [lighter](uint8_t c) {
    return static_cast<uint8_t>(std::min(255, c + lighter));
  };
  return {add(color.r), add(color.g), add(color.b), color.a};
}

/// The colours of places, where the recording knows no categories: snapshots of PyTorch, segments.
constexpr std::array kPlaceColors = {Color{0x56, 0xB4, 0xE9, 255}, Color{0xE6, 0x9F, 0x00, 255},
                                     Color{0x00, 0x9E, 0x73, 255}, Color{0xCC, 0x79, 0xA7, 255},
                                     Color{0xD5, 0x5E, 0x00, 255}, Color{0x8C, 0x9E, 0xFF, 255},
                                     Color{0xB5, 0xBD, 0x3C, 255}, Color{0x9C, 0x75, 0x5F, 255}};

/// Colours blocks by category, or by place if all are in the category of what is not known.
class BlockColors {
 public:
  explicit BlockColors(const Lane& lane) : lane_(lane), by_place_(are_colored_by_place(lane)) {}

  Color color(uint32_t index) const {
    const Block& block = lane_.arrays().blocks[index];
    const std::string_view place = lane_.label(block);
    if (!by_place_ || place.empty()) return shaded(color_of(block.category), index);
    return shaded(place_color(place), index);
  }

 private:
  const Lane& lane_;
  bool by_place_ = false;
};

void fill(Image& image, int x0, int x1, int low, int high, const Color& color) {
  x0 = std::clamp(x0, 0, image.width);
  x1 = std::clamp(x1, 0, image.width);
  low = std::clamp(low, 0, image.height);
  high = std::clamp(high, 0, image.height);
  const uint32_t pixel = packed(color);
  for (int row = low; row < high; ++row) {
    const auto line =
        static_cast<size_t>(image.height - 1 - row) * static_cast<size_t>(image.width);
    std::fill(image.pixels.begin() + static_cast<std::ptrdiff_t>(line + static_cast<size_t>(x0)),
              image.pixels.begin() + static_cast<std::ptrdiff_t>(line + static_cast<size_t>(x1)),
              pixel);
  }
}

/// Follows the large live blocks from one column to the next.
class LargeBlocks {
 public:
  LargeBlocks(const Lane& lane, const LaneStyle& style, double least_bytes)
      : lane_(lane), style_(style), least_bytes_(least_bytes) {}

  const std::vector<uint32_t>& blocks_after(int64_t change) {
    if (!started_) {
      start(change);
    } else {
      std::erase_if(alive_, [&](uint32_t b) { return !block(b).is_alive_after(change); });
      const auto& blocks = lane_.arrays().blocks;
      for (; next_ < blocks.size() && static_cast<int64_t>(blocks[next_].born) <= change; ++next_) {
        add(static_cast<uint32_t>(next_), change);
      }
    }
    return alive_;
  }

 private:
  const Block& block(uint32_t index) const { return lane_.arrays().blocks[index]; }
  void add(uint32_t index, int64_t change) {
    const Block& candidate = block(index);
    const bool is_large = static_cast<double>(candidate.given_bytes) >= least_bytes_;
    if (is_large && candidate.is_alive_after(change) && is_shown(style_, candidate.category)) {
      alive_.push_back(index);
    }
  }
  void start(int64_t change) {
    started_ = true;
    for (const uint32_t index : lane_.alive_after(change)) add(index, change);
    const auto& blocks = lane_.arrays().blocks;
    next_ = static_cast<size_t>(
        std::ranges::upper_bound(blocks, change, {},
                                 [](const Block& b) { return static_cast<int64_t>(b.born); }) -
        blocks.begin());
  }

  const Lane& lane_;
  const LaneStyle& style_;
  double least_bytes_;
  std::vector<uint32_t> alive_;
  size_t next_ = 0;
  bool started_ = false;
};

/// The small blocks of a category, in one band.
struct SmallBand {
  Category category{};
  ColumnPart part;
};

/// Returns the bands of the blocks that are smaller than a pixel, from below.
std::vector<SmallBand> small_bands(const Extent& column, const Lane& lane,
                                   const std::vector<uint32_t>& large, const LaneStyle& style) {
  CategoryBytes rest = column.at_max;
  for (const uint32_t index : large) {
    const Block& block = lane.arrays().blocks[index];
    rest[static_cast<size_t>(block.category)] -= block.given_bytes;
  }
  std::vector<SmallBand> bands;
  double low = ground_of(style);
  for (const Category category : stacking_order()) {
    const int64_t bytes = rest[static_cast<size_t>(category)];
    if (bytes <= 0 || (style.hidden_categories >> static_cast<unsigned>(category) & 1U) != 0) {
      continue;
    }
    const double high = low + static_cast<double>(bytes) * pixels_per_byte(style);
    bands.push_back({category, {low, high}});
    low = high;
  }
  return bands;
}

struct Placement {
  std::vector<ShownAddresses> ranges;
  std::vector<double> bottoms;  // pixels
  double pixels_per_byte = 0;

  double y_of(uint64_t address) const {
    const auto after = std::ranges::upper_bound(ranges, address, {},
                                                [](const ShownAddresses& r) { return r.begin; });
    if (after == ranges.begin()) return 0;
    const auto i = static_cast<size_t>(after - ranges.begin()) - 1;
    return bottoms[i] + static_cast<double>(address - ranges[i].begin) * pixels_per_byte;
  }
};

std::vector<ShownAddresses> joined(std::vector<ShownAddresses> ranges) {
  std::ranges::sort(ranges, {}, &ShownAddresses::begin);
  std::vector<ShownAddresses> all;
  for (const ShownAddresses& range : ranges) {
    if (!all.empty() && range.begin <= all.back().end + kLargeHoleBytes) {
      all.back().end = std::max(all.back().end, range.end);
    } else {
      all.push_back(range);
    }
  }
  return all;
}

Placement placement_of(std::vector<ShownAddresses> blocks, int height) {
  Placement placement{.ranges = joined(std::move(blocks)), .bottoms = {}};
  double bytes = 0;
  for (const ShownAddresses& range : placement.ranges) {
    bytes += static_cast<double>(range.end - range.begin);
  }
  const auto gaps = static_cast<double>(placement.ranges.size()) * kSeparator;
  placement.pixels_per_byte = bytes > 0 ? std::max(1.0, height - gaps) / bytes : 0;
  double bottom = 0;
  for (const ShownAddresses& range : placement.ranges) {
    placement.bottoms.push_back(bottom);
    bottom += static_cast<double>(range.end - range.begin) * placement.pixels_per_byte + kSeparator;
  }
  return placement;
}

/// A block that is visible for half a pixel or more, with the pixels where it begins and ends.
struct VisibleBlock {
  const Block* block = nullptr;
  uint32_t index = 0;
  double x0 = 0;
  double x1 = 0;
};

std::vector<VisibleBlock> seen_blocks(const Lane& lane, const Warp& warp, const Range& range,
                                      int width, const LaneStyle& style) {
  const auto& blocks = lane.arrays().blocks;
  const int64_t first =
      change_at(warp, lane, std::max(range.begin, warp.extent().begin)).value_or(kBeforeAll);
  const int64_t last =
      change_at(warp, lane, std::min(range.end, warp.extent().end)).value_or(lane.changes() - 1);
  const double scale = width / range.length();
  std::vector<VisibleBlock> seen;
  const auto take = [&](uint32_t index) {
    const Block& block = blocks[index];
    if (!is_shown(style, block.category)) return;
    // A block that is never freed lies there until the recording ends.
    const double end =
        block.died == kNeverFreed ? warp.extent().end : x_of_change(warp, lane, block.died);
    const double x0 = (x_of_change(warp, lane, block.born) - range.begin) * scale;
    const double x1 = (end - range.begin) * scale;
    if (x1 - x0 >= 0.5) seen.push_back({&block, index, x0, x1});
  };
  for (const uint32_t index : lane.alive_after(first)) take(index);
  const auto born = [](const Block& block) { return static_cast<int64_t>(block.born); };
  auto at = std::ranges::upper_bound(blocks, first, {}, born);
  for (; at != blocks.end() && born(*at) <= last; ++at) {
    take(static_cast<uint32_t>(at - blocks.begin()));
  }
  return seen;
}

Placement placement_of(const std::vector<VisibleBlock>& seen, int height) {
  std::vector<ShownAddresses> ranges;
  for (const VisibleBlock& one : seen) {
    const uint64_t begin = one.block->address;
    ranges.push_back({begin, begin + static_cast<uint64_t>(one.block->given_bytes)});
  }
  return placement_of(std::move(ranges), height);
}

}  // namespace

bool are_colored_by_place(const Lane& lane) {
  const Extent& peak = lane.peak();
  return peak.at_max[static_cast<size_t>(Category::other)] == peak.max_bytes;
}

Color place_color(std::string_view place) {
  uint32_t hash = 0x811c9dc5;  // FNV-1a
  for (const char c : place) hash = (hash ^ static_cast<unsigned char>(c)) * 0x01000193;
  return kPlaceColors[hash % kPlaceColors.size()];
}

Image block_stack_image(const Lane& lane, const Columns& columns, const LaneStyle& style) {
  Image image = empty_image(columns.size(), style);
  const double scale = pixels_per_byte(style);
  if (scale <= 0) return image;
  const Colors& colors = colors_of(style.theme);
  const BlockColors block_colors(lane);
  LargeBlocks large(lane, style, 1 / scale);
  std::vector<std::optional<ColumnPart>> marked(columns.size());
  for (int x = 0; x < image.width; ++x) {
    const auto& column = columns[static_cast<size_t>(x)];
    if (!column) continue;
    const auto& alive = large.blocks_after(column->max_change);
    double low = ground_of(style);
    for (const SmallBand& band : small_bands(*column, lane, alive, style)) {
      fill(image, x, x + 1, static_cast<int>(std::lround(band.part.low)),
           static_cast<int>(std::lround(band.part.high)), color_of(band.category));
      low = band.part.high;
    }
    for (const uint32_t index : alive) {
      const Block& block = lane.arrays().blocks[index];
      const double high = low + static_cast<double>(block.given_bytes) * scale;
      const int top = static_cast<int>(std::lround(high));
      if (style.marked_block == index) marked[static_cast<size_t>(x)] = ColumnPart{low, high};
      fill(image, x, x + 1, static_cast<int>(std::lround(low)), top, block_colors.color(index));
      if (high - low >= 3) fill(image, x, x + 1, top - 1, top, colors.plot);
      low = high;
    }
  }
  outline_parts(image, marked, style);
  return image;
}

namespace {

/// Returns the small block at a height, in bytes, of its category's band. The blocks lie there in
/// order of birth, like the large ones.
std::optional<uint32_t> small_block_at(const Lane& lane, int64_t change,
                                       const std::vector<uint32_t>& large, const SmallBand& band,
                                       double bytes) {
  for (const uint32_t index : lane.alive_after(change)) {
    const Block& block = lane.arrays().blocks[index];
    const bool is_large = std::ranges::binary_search(large, index);
    if (block.category != band.category || is_large) continue;
    bytes -= static_cast<double>(block.given_bytes);
    if (bytes < 0) return index;
  }
  return std::nullopt;
}

}  // namespace

std::optional<StackPoint> stack_point(const Lane& lane, const Extent& column,
                                      const LaneStyle& style, double y) {
  const double scale = pixels_per_byte(style);
  if (scale <= 0) return std::nullopt;
  LargeBlocks large(lane, style, 1 / scale);
  const auto& alive = large.blocks_after(column.max_change);
  double low = ground_of(style);
  for (const SmallBand& band : small_bands(column, lane, alive, style)) {
    if (y < band.part.high) {
      const double above = (y - band.part.low) / scale;
      return StackPoint{.block = small_block_at(lane, column.max_change, alive, band, above),
                        .category = band.category};
    }
    low = band.part.high;
  }
  for (const uint32_t index : alive) {
    const Block& block = lane.arrays().blocks[index];
    low += static_cast<double>(block.given_bytes) * scale;
    if (y < low) return StackPoint{.block = index, .category = block.category};
  }
  return std::nullopt;
}

namespace {

/// Returns where a time lies in a picture, in pixels.
double x_of_time(const Lane& lane, const Warp& warp, int64_t time_ns, const Range& range,
                 int width) {
  const auto time = static_cast<double>(std::min(time_ns, lane.info().end_ns));
  const double x =
      warp.x_of(warp.is_by_change() ? static_cast<double>(lane.change_at(time)) : time);
  return (x - range.begin) * width / range.length();
}

/// Draws the parts of segments that tensors have, over the pale segments.
void draw_uses(Image& image, const Lane& lane, const Warp& warp, const Range& range,
               const Placement& placement, const std::vector<VisibleBlock>& seen) {
  if (lane.arrays().uses.empty()) return;
  const BlockColors block_colors(lane);
  std::vector<bool> is_seen(lane.arrays().blocks.size());
  for (const VisibleBlock& one : seen) is_seen[one.index] = true;
  for (const SegmentUse& use : lane.arrays().uses) {
    if (!is_seen[use.block]) continue;
    const double x0 = x_of_time(lane, warp, use.begin_ns, range, image.width);
    if (x0 >= image.width) break;
    const double x1 = x_of_time(lane, warp, use.end_ns, range, image.width);
    if (x1 <= 0 || x1 - x0 < 0.5) continue;
    const double low = placement.y_of(use.address);
    const double high = low + static_cast<double>(use.bytes) * placement.pixels_per_byte;
    const int left = static_cast<int>(std::lround(std::max(0.0, x0)));
    fill(image, left, std::max(left + 1, static_cast<int>(std::lround(x1))),
         static_cast<int>(std::lround(low)), static_cast<int>(std::lround(high)),
         block_colors.color(static_cast<uint32_t>(use.block)));
  }
}

Color pale(const Color& color, const Color& ground) {
  const auto mix = [](uint8_t a, uint8_t b) { return static_cast<uint8_t>((a + 3 * b) / 4); };
  return {mix(color.r, ground.r), mix(color.g, ground.g), mix(color.b, ground.b), 255};
}

/// Returns the marks beside ranges of addresses: where each begins, and round distances from there.
std::vector<ImageMark> address_marks(const Placement& placement, const LaneStyle& style) {
  constexpr double kMarkDistance = 34;  // pixels, at the scale of the lines
  std::vector<ImageMark> marks;
  for (size_t i = 0; i < placement.ranges.size(); ++i) {
    const ShownAddresses& range = placement.ranges[i];
    const auto bytes = static_cast<double>(range.end - range.begin);
    const double rows = bytes * placement.pixels_per_byte;
    marks.push_back({placement.bottoms[i], fmt::format("{:#x}", range.begin), true});
    const auto most = static_cast<int>(rows / (kMarkDistance * std::max(1, style.edge)));
    if (most < 1) continue;
    for (const Tick& tick : byte_ticks(bytes, most)) {
      if (tick.at <= 0) continue;
      marks.push_back(
          {placement.bottoms[i] + tick.at * placement.pixels_per_byte, "+" + tick.text, false});
    }
  }
  return marks;
}

std::string caption_of(const AddressPicture& picture, const Lane& lane) {
  return fmt::format("{} of addresses in {} range{}{}{}", bytes_text(picture.shown_bytes),
                     picture.ranges.size(), picture.ranges.size() == 1 ? "" : "s",
                     are_colored_by_place(lane) ? ", coloured by place" : "",
                     lane.arrays().uses.empty() ? "" : ", pale where it is free");
}

}  // namespace

AddressPicture address_image(const Lane& lane, const Warp& warp, const Range& range, int width,
                             const LaneStyle& style) {
  AddressPicture picture{
      .image = empty_image(static_cast<size_t>(width), style), .ranges = {}, .shown_bytes = 0};
  if (!(range.length() > 0)) return picture;
  const std::vector<VisibleBlock> seen = seen_blocks(lane, warp, range, width, style);
  Placement placement = placement_of(seen, style.height);
  const BlockColors block_colors(lane);
  const bool has_uses = !lane.arrays().uses.empty();
  const Color& ground = colors_of(style.theme).plot;
  std::vector<std::optional<ColumnPart>> marked(static_cast<size_t>(width));
  for (const VisibleBlock& one : seen) {
    const double low = placement.y_of(one.block->address);
    const double high =
        low + static_cast<double>(one.block->given_bytes) * placement.pixels_per_byte;
    const int x0 = static_cast<int>(std::lround(one.x0));
    const int x1 = std::max(x0 + 1, static_cast<int>(std::lround(one.x1)));
    const Color color = block_colors.color(one.index);
    fill(picture.image, x0, x1, static_cast<int>(std::lround(low)),
         static_cast<int>(std::lround(high)), has_uses ? pale(color, ground) : color);
    if (style.marked_block != one.index) continue;
    for (int x = std::max(0, x0); x < std::min(x1, width); ++x) {
      marked[static_cast<size_t>(x)] = ColumnPart{low, high};
    }
  }
  draw_uses(picture.image, lane, warp, range, placement, seen);
  outline_parts(picture.image, marked, style);
  picture.image.marks = address_marks(placement, style);
  for (const ShownAddresses& shown : placement.ranges) {
    picture.shown_bytes += static_cast<int64_t>(shown.end - shown.begin);
  }
  picture.ranges = std::move(placement.ranges);
  picture.image.caption = caption_of(picture, lane);
  return picture;
}

std::optional<uint32_t> block_at_address(const Lane& lane, const Warp& warp, const Range& range,
                                         int width, const LaneStyle& style, double x, double y) {
  if (!(range.length() > 0)) return std::nullopt;
  const std::vector<VisibleBlock> seen = seen_blocks(lane, warp, range, width, style);
  const Placement placement = placement_of(seen, style.height);
  std::optional<uint32_t> found;
  for (const VisibleBlock& one : seen) {
    const double low = placement.y_of(one.block->address);
    const double high =
        low + static_cast<double>(one.block->given_bytes) * placement.pixels_per_byte;
    // Later blocks cover earlier ones.
    if (x >= one.x0 && x < one.x1 && y >= low && y < high) found = one.index;
  }
  return found;
}

}  // namespace shardlens::viewer
