#include "viewer/scene/lane_image.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>

namespace shardlens::viewer {

namespace {

constexpr double kEdgeStrength = 0.55;
constexpr double kHatchStrength = 0.45;
constexpr double kLeastStrength = 0.5;

Color mixed(const Color& a, const Color& b, double part) {
  const auto mix = [part](uint8_t from, uint8_t to) {
    return static_cast<uint8_t>(std::lround(from + (to - from) * part));
  };
  return {mix(a.r, b.r), mix(a.g, b.g), mix(a.b, b.b), mix(a.a, b.a)};
}

Color unpacked(uint32_t pixel) {
  return {static_cast<uint8_t>(pixel), static_cast<uint8_t>(pixel >> 8),
          static_cast<uint8_t>(pixel >> 16), static_cast<uint8_t>(pixel >> 24)};
}

/// Draws into one column of an image; y counts from the bottom, in pixels and fractions of pixels.
class Column {
 public:
  Column(Image& image, int x, const LaneStyle& style) : image_(image), x_(x), style_(style) {}

  /// Fills the column from `low` to `high`; a partly covered pixel is mixed.
  void fill(double low, double high, Category category) {
    low = std::clamp(low, 0.0, static_cast<double>(image_.height));
    high = std::clamp(high, 0.0, static_cast<double>(image_.height));
    if (high <= low) return;
    const Color plain = color_of(category);
    const Color dark = mixed(plain, colors_of(style_.theme).edge, kHatchStrength);
    const auto first = static_cast<int>(low);
    const auto last = static_cast<int>(std::ceil(high));
    for (int row = first; row < last; ++row) {
      const bool dark_here =
          style_.hatch_period > 0 && is_hatched(category, x_, top(row), style_.hatch_period);
      const double covered = std::min<double>(row + 1, high) - std::max<double>(row, low);
      put(row, dark_here ? dark : plain, covered);
    }
  }
  void fill(double low, double high, const Color& color) {
    low = std::clamp(low, 0.0, static_cast<double>(image_.height));
    high = std::clamp(high, 0.0, static_cast<double>(image_.height));
    for (int row = static_cast<int>(low); row < static_cast<int>(std::ceil(high)); ++row) {
      put(row, color, std::min<double>(row + 1, high) - std::max<double>(row, low));
    }
  }
  /// Mixes a fraction of the colour into a pixel.
  void tint(int row, const Color& color, double part) {
    if (row < 0 || row >= image_.height) return;
    uint32_t& pixel = at(row);
    const Color before = unpacked(pixel);
    pixel = packed(mixed(before.a == 0 ? color.with_alpha(0) : before, color, part));
  }

 private:
  int top(int row) const { return image_.height - 1 - row; }
  uint32_t& at(int row) {
    return image_.pixels[static_cast<size_t>(top(row)) * static_cast<size_t>(image_.width) +
                         static_cast<size_t>(x_)];
  }
  void put(int row, const Color& color, double covered) {
    uint32_t& pixel = at(row);
    if (covered >= 1) {
      pixel = packed(color);
      return;
    }
    const Color before = unpacked(pixel);
    pixel = packed(mixed(before.a == 0 ? color.with_alpha(0) : before, color, covered));
  }

  Image& image_;
  int x_;
  const LaneStyle& style_;
};

/// Draws a line over the stack that ends at `high`.
void draw_edge(Column& column, double high, const LaneStyle& style) {
  const Color& edge = colors_of(style.theme).edge;
  const int row = static_cast<int>(std::ceil(high)) - 1;
  for (int i = 0; i < style.edge; ++i) column.tint(row - i, edge, kEdgeStrength);
}

void draw_stack(Column& column, const Extent& extent, const LaneStyle& style) {
  const double scale = pixels_per_byte(style);
  const double ground = ground_of(style);
  double low = ground;
  for (const Category category : stacking_order()) {
    const int64_t bytes = extent.at_max[static_cast<size_t>(category)];
    if (bytes <= 0 || !is_shown(style, category)) continue;
    const double high = low + static_cast<double>(bytes) * scale;
    column.fill(low, high, category);
    low = high;
  }
  if (low > ground) draw_edge(column, low, style);
  // The minimum is only known for the whole stack, not for some of its categories.
  const int least = static_cast<int>(ground + static_cast<double>(extent.min_bytes) * scale);
  if (style.hidden_categories == 0 && least + 2 < static_cast<int>(low)) {
    column.tint(least, colors_of(style.theme).plot, kLeastStrength);
  }
}

void draw_difference(Column& column, const CategoryBytes& growth, const LaneStyle& style) {
  const double middle = style.height / 2.0;
  const double scale = pixels_per_byte(style) / 2;
  double high = middle;
  double low = middle;
  for (const Category category : stacking_order()) {
    const int64_t bytes = growth[static_cast<size_t>(category)];
    if (bytes == 0 || !is_shown(style, category)) continue;
    const double length = static_cast<double>(bytes) * scale;
    double& end = bytes > 0 ? high : low;
    column.fill(std::min(end, end + length), std::max(end, end + length), category);
    end += length;
  }
}

struct Fold {
  int64_t least = 0;
  int64_t median = 0;
  int64_t most = 0;
};

std::optional<Fold> fold_of(const std::vector<Columns>& ranks, size_t x) {
  std::vector<int64_t> bytes;
  for (const Columns& columns : ranks) {
    if (columns[x]) bytes.push_back(columns[x]->max_bytes);
  }
  if (bytes.empty()) return std::nullopt;
  std::ranges::sort(bytes);
  return Fold{bytes.front(), bytes[bytes.size() / 2], bytes.back()};
}

}  // namespace

double pixels_per_byte(const LaneStyle& style) {
  const double bytes = style.top_bytes - style.bottom_bytes;
  return bytes > 0 ? style.height / bytes : 0;
}

double ground_of(const LaneStyle& style) { return -style.bottom_bytes * pixels_per_byte(style); }

Image empty_image(size_t width, const LaneStyle& style) {
  const int w = static_cast<int>(width);
  const int h = std::max(0, style.height);
  return {.width = w,
          .height = h,
          .pixels = std::vector<uint32_t>(width * static_cast<size_t>(h)),
          .caption = {},
          .version = 0,
          .is_bottom_up = false};
}

bool is_shown(const LaneStyle& style, Category category) {
  return (style.hidden_categories >> static_cast<unsigned>(category) & 1U) == 0;
}

Image stack_image(const Columns& columns, const LaneStyle& style) {
  Image image = empty_image(columns.size(), style);
  std::vector<std::optional<ColumnPart>> marked(columns.size());
  for (size_t x = 0; x < columns.size(); ++x) {
    Column column(image, static_cast<int>(x), style);
    if (!columns[x]) continue;
    draw_stack(column, *columns[x], style);
    if (style.marked_category) {
      marked[x] = part_of_category(*columns[x], style, *style.marked_category);
    }
  }
  outline_parts(image, marked, style);
  return image;
}

void outline_parts(Image& image, const std::vector<std::optional<ColumnPart>>& parts,
                   const LaneStyle& style) {
  const Color& color = colors_of(style.theme).cursor;
  std::optional<ColumnPart> before;
  for (int x = 0; x < image.width && x < static_cast<int>(parts.size()); ++x) {
    const auto& part = parts[static_cast<size_t>(x)];
    const bool has_next = x + 1 < static_cast<int>(parts.size());
    const auto next = has_next ? parts[static_cast<size_t>(x) + 1] : std::nullopt;
    if (part) {
      Column column(image, x, style);
      const auto line = [&](double from, double to) {
        const auto row = [&](double y) {
          const double most = image.height + style.edge;
          return static_cast<int>(std::lround(std::clamp(y, -1.0, most)));
        };
        const int low = row(std::min(from, to));
        const int high = row(std::max(from, to)) + style.edge;
        for (int y = low; y < high; ++y) column.tint(y - style.edge, color, 1);
      };
      line(before.value_or(*part).low, part->low + style.edge);
      line(before.value_or(*part).high, part->high);
      if (!before || !next) line(part->low, part->high);  // where the parts begin and end
    }
    before = part;
  }
}

std::optional<ColumnPart> part_of_category(const Extent& column, const LaneStyle& style,
                                           Category category) {
  if (!is_shown(style, category) || column.at_max[static_cast<size_t>(category)] <= 0) {
    return std::nullopt;
  }
  double low = ground_of(style);
  for (const Category below : stacking_order()) {
    const double high = low + static_cast<double>(column.at_max[static_cast<size_t>(below)]) *
                                  pixels_per_byte(style);
    if (below == category) return ColumnPart{low, high};
    if (is_shown(style, below)) low = high;
  }
  return std::nullopt;
}

std::optional<Category> category_at(const Extent& column, const LaneStyle& style, double y) {
  for (const Category category : stacking_order()) {
    const auto part = part_of_category(column, style, category);
    if (part && y >= part->low && y < part->high) return category;
  }
  return std::nullopt;
}

Image difference_image(const DifferenceColumns& columns, const LaneStyle& style) {
  Image image = empty_image(columns.size(), style);
  for (size_t x = 0; x < columns.size(); ++x) {
    Column column(image, static_cast<int>(x), style);
    if (columns[x]) draw_difference(column, *columns[x], style);
  }
  return image;
}

Image residual_image(const std::vector<std::optional<int64_t>>& bytes, const LaneStyle& style) {
  Image image = empty_image(bytes.size(), style);
  const Colors& colors = colors_of(style.theme);
  const double middle = style.height / 2.0;
  const double scale = pixels_per_byte(style) / 2;
  for (size_t x = 0; x < bytes.size(); ++x) {
    if (bytes[x].value_or(0) == 0) continue;
    const bool is_more = *bytes[x] > 0;
    const double length = std::max(1.0, std::abs(static_cast<double>(*bytes[x])) * scale);
    Column column(image, static_cast<int>(x), style);
    column.fill(is_more ? middle : middle - length, is_more ? middle + length : middle,
                is_more ? colors.more : colors.less);
  }
  return image;
}

Image folded_image(const std::vector<Columns>& ranks, const LaneStyle& style) {
  Image image = empty_image(ranks.empty() ? 0 : ranks.front().size(), style);
  const Color& accent = colors_of(style.theme).accent;
  const double scale = pixels_per_byte(style);
  const auto pixels = [&](int64_t bytes) {
    return ground_of(style) + static_cast<double>(bytes) * scale;
  };
  for (int x = 0; x < image.width; ++x) {
    const auto fold = fold_of(ranks, static_cast<size_t>(x));
    if (!fold) continue;
    Column column(image, x, style);
    column.fill(0, pixels(fold->least), accent.with_alpha(60));
    column.fill(pixels(fold->least), pixels(fold->most), accent.with_alpha(140));
    column.tint(static_cast<int>(pixels(fold->median)), colors_of(style.theme).edge, 1);
    draw_edge(column, pixels(fold->most), style);
  }
  return image;
}

void draw_outline(Image& image, const std::vector<std::optional<int64_t>>& bytes,
                  const LaneStyle& style, const Color& color, int dash) {
  const double scale = pixels_per_byte(style);
  const double ground = ground_of(style);
  std::optional<int> before;
  for (int x = 0; x < image.width && x < static_cast<int>(bytes.size()); ++x) {
    const auto& value = bytes[static_cast<size_t>(x)];
    if (!value) {
      before.reset();
      continue;
    }
    const double y = ground + static_cast<double>(*value) * scale;
    const int row = static_cast<int>(std::clamp(y, -1.0 - style.edge, image.height + 1.0));
    const bool is_drawn = dash <= 0 || x / dash % 2 == 0;
    Column column(image, x, style);
    const int low = std::min(row, before.value_or(row));
    const int high = std::max(row, before.value_or(row)) + style.edge;
    for (int y = low; is_drawn && y < high; ++y) column.tint(y, color, 1);
    before = row;
  }
}

std::vector<std::optional<int64_t>> totals_of(const Columns& columns, uint32_t hidden_categories) {
  std::vector<std::optional<int64_t>> totals;
  totals.reserve(columns.size());
  for (const auto& column : columns) {
    std::optional<int64_t> total;
    if (column) {
      total = 0;
      for (size_t c = 0; c < kCategories; ++c) {
        if ((hidden_categories >> c & 1U) == 0) *total += column->at_max[c];
      }
    }
    totals.push_back(total);
  }
  return totals;
}

}  // namespace shardlens::viewer
