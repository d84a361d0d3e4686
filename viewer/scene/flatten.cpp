#include "viewer/scene/flatten.h"

#include <algorithm>
#include <cmath>
#include <thread>

namespace shardlens::viewer {

namespace {

/// Returns `from` with `part` of 255 of `to` mixed into it. It uses integers, so that pixels are
/// the same on every machine.
uint32_t mixed_pixel(uint32_t from, uint32_t to, uint32_t part) {
  constexpr uint32_t kMask = 0x00FF00FF;
  const uint32_t rest = 255 - part;
  const auto mix = [&](uint32_t a, uint32_t b) {
    const uint32_t sum = (a & kMask) * rest + (b & kMask) * part + 0x00800080;
    return (sum + (sum >> 8 & kMask)) >> 8 & kMask;
  };
  return mix(from, to) | mix(from >> 8, to >> 8) << 8;
}

uint32_t alpha_of(uint32_t pixel) { return pixel >> 24; }

/// Draws into the rows of one thread.
class Rows {
 public:
  Rows(Image& image, int begin, int end) : image_(image), begin_(begin), end_(end) {}

  void operator()(const Fill& item) const { round_box(item.box, item.radius, item.color, 0); }
  void operator()(const Outline& item) const {
    round_box(item.box, item.radius, item.color, std::max(1.F, std::round(item.width)));
  }
  void operator()(const Line& item) const {
    // All lines are vertical or horizontal.
    const float width = std::max(1.F, std::round(item.width));
    const float x = std::min(item.x0, item.x1);
    const float y = std::min(item.y0, item.y1);
    const bool is_level = item.y0 == item.y1;
    const float half = std::floor(width / 2);
    const Box box = is_level ? Box{x, std::round(y) - half, std::abs(item.x1 - item.x0), width}
                             : Box{std::round(x) - half, y, width, std::abs(item.y1 - item.y0)};
    round_box(box, 0, item.color, 0);
  }
  void operator()(const Triangle& item) const;
  void operator()(const Text&) const {}
  void operator()(const PlacedImage& item) const;

 private:
  struct Span {
    int begin = 0;
    int end = 0;
  };
  Span columns(float from, float to) const {
    return {std::clamp(static_cast<int>(std::lround(from)), 0, image_.width),
            std::clamp(static_cast<int>(std::lround(to)), 0, image_.width)};
  }
  Span rows(float from, float to) const {
    return {std::clamp(static_cast<int>(std::lround(from)), begin_, end_),
            std::clamp(static_cast<int>(std::lround(to)), begin_, end_)};
  }
  uint32_t* row(int y) const { return image_.pixels.data() + image_.begin_of_row(y); }
  static void put(uint32_t& pixel, uint32_t color, uint32_t alpha) {
    pixel = alpha >= 255 ? color | 0xFF000000 : mixed_pixel(pixel, color | 0xFF000000, alpha);
  }
  static void put_row(uint32_t* line, int begin, int end, const Color& color);
  void round_box(const Box& box, float radius, const Color& color, float border) const;

  Image& image_;
  int begin_;
  int end_;
};

/// Returns how far a point is inside a round box, in pixels; below 0 it is outside.
float depth(float x, float y, const Box& box, float radius) {
  const float dx = std::max({box.x + radius - x, x - (box.right() - radius), 0.F});
  const float dy = std::max({box.y + radius - y, y - (box.bottom() - radius), 0.F});
  // As std::hypot would, but std::hypot needs a newer glibc than any other function called here.
  if (dx > 0 && dy > 0)
    return radius - static_cast<float>(std::sqrt(double{dx} * dx + double{dy} * dy));
  return std::min({x - box.x, box.right() - x, y - box.y, box.bottom() - y});
}

/// Fills the fully covered pixels of a row.
void Rows::put_row(uint32_t* line, int begin, int end, const Color& color) {
  if (color.a == 255) {
    std::fill(line + begin, line + std::max(begin, end), packed(color));
    return;
  }
  for (int x = begin; x < end; ++x) put(line[x], packed(color), color.a);
}

/// Draws a round box: an outline of the width `border`, or a filled box if that is 0.
void Rows::round_box(const Box& wanted, float radius, const Color& color, float border) const {
  const Span xs = columns(wanted.x, wanted.right());
  const Span ys = rows(wanted.y, wanted.bottom());
  const Box box{std::round(wanted.x), std::round(wanted.y),
                std::round(wanted.right()) - std::round(wanted.x),
                std::round(wanted.bottom()) - std::round(wanted.y)};
  radius = std::min({radius, box.w / 2, box.h / 2});
  const int edge = static_cast<int>(std::ceil(std::max(radius, border)));
  const int left = std::clamp(static_cast<int>(box.x) + edge, xs.begin, xs.end);
  const int right = std::clamp(static_cast<int>(box.right()) - edge, left, xs.end);
  const auto mix = [&](uint32_t* line, int begin, int end, int y) {
    for (int x = begin; x < end; ++x) {
      const float inside =
          depth(static_cast<float>(x) + 0.5F, static_cast<float>(y) + 0.5F, box, radius);
      float covered = std::clamp(inside + 0.5F, 0.F, 1.F);
      if (border > 0) covered -= std::clamp(inside - border + 0.5F, 0.F, 1.F);
      const auto alpha = static_cast<uint32_t>(std::lround(covered * static_cast<float>(color.a)));
      if (alpha > 0) put(line[x], packed(color), alpha);
    }
  };
  for (int y = ys.begin; y < ys.end; ++y) {
    const bool is_inner =
        y >= static_cast<int>(box.y) + edge && y < static_cast<int>(box.bottom()) - edge;
    const bool is_plain = border == 0 && (radius == 0 || is_inner);
    if (is_plain) {
      put_row(row(y), xs.begin, xs.end, color);
      continue;
    }
    // A row between the corners is plain, or empty if only an outline is drawn.
    mix(row(y), xs.begin, left, y);
    if (border == 0) put_row(row(y), left, right, color);
    if (border > 0 && !is_inner) mix(row(y), left, right, y);
    mix(row(y), right, xs.end, y);
  }
}

void Rows::operator()(const Triangle& item) const {
  const auto& p = item.points;
  const float left = std::min({p[0], p[2], p[4]});
  const float right = std::max({p[0], p[2], p[4]});
  const Span xs = columns(std::floor(left), std::ceil(right));
  const Span ys =
      rows(std::floor(std::min({p[1], p[3], p[5]})), std::ceil(std::max({p[1], p[3], p[5]})));
  const auto side = [&](size_t a, size_t b, float x, float y) {
    return (p[b] - p[a]) * (y - p[a + 1]) - (p[b + 1] - p[a + 1]) * (x - p[a]);
  };
  constexpr int kSamples = 4;  // in each direction
  for (int y = ys.begin; y < ys.end; ++y) {
    for (int x = xs.begin; x < xs.end; ++x) {
      uint32_t hits = 0;
      for (int i = 0; i < kSamples * kSamples; ++i) {
        const float sx =
            static_cast<float>(x) + (static_cast<float>(i % kSamples) + 0.5F) / kSamples;
        const float sy =
            static_cast<float>(y) + (static_cast<float>(i / kSamples) + 0.5F) / kSamples;
        const float a = side(0, 2, sx, sy);
        const float b = side(2, 4, sx, sy);
        const float c = side(4, 0, sx, sy);
        hits += (a >= 0 && b >= 0 && c >= 0) || (a <= 0 && b <= 0 && c <= 0) ? 1 : 0;
      }
      const uint32_t alpha = hits * item.color.a / (kSamples * kSamples);
      if (alpha > 0) put(row(y)[x], packed(item.color), alpha);
    }
  }
}

void Rows::operator()(const PlacedImage& item) const {
  const Image& source = *item.image;
  const Span xs = columns(item.box.x, item.box.right());
  const Span ys = rows(item.box.y, item.box.bottom());
  const int left = static_cast<int>(std::lround(item.box.x));
  const int top = static_cast<int>(std::lround(item.box.y));
  const int width = std::max(1, static_cast<int>(std::lround(item.box.right())) - left);
  const int height = std::max(1, static_cast<int>(std::lround(item.box.bottom())) - top);
  for (int y = ys.begin; y < ys.end; ++y) {
    const int from_row = std::min(source.height - 1, (y - top) * source.height / height);
    const uint32_t* const from =
        source.pixels.data() + static_cast<size_t>(from_row) * static_cast<size_t>(source.width);
    uint32_t* const line = row(y);
    for (int x = xs.begin; x < xs.end; ++x) {
      const int column = source.width == width
                             ? x - left
                             : std::min(source.width - 1, (x - left) * source.width / width);
      const uint32_t pixel = from[column];
      if (alpha_of(pixel) > 0) put(line[x], pixel, alpha_of(pixel));
    }
  }
}

}  // namespace

void flatten(const Picture& picture, Image& image) {
  image.width = picture.width;
  image.height = picture.height;
  image.pixels.resize(static_cast<size_t>(picture.width) * static_cast<size_t>(picture.height));
  const auto draw = [&](int begin, int end) {
    const Rows rows(image, begin, end);
    for (const Item& item : picture.items) std::visit(rows, item);
  };
  const int middle = picture.height / 2;
  const std::jthread upper(draw, 0, middle);
  draw(middle, picture.height);
}

}  // namespace shardlens::viewer
