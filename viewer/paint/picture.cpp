#include "viewer/paint/picture.h"

#include <fmt/format.h>

namespace shardlens::viewer {

namespace {

struct Writer {
  std::string operator()(const Fill& i) const {
    return fmt::format("fill {} {}", box(i.box), color(i.color));
  }
  std::string operator()(const Outline& i) const {
    return fmt::format("outline {} {}", box(i.box), color(i.color));
  }
  std::string operator()(const Line& i) const {
    return fmt::format("line {:.1f},{:.1f} {:.1f},{:.1f} {}", i.x0, i.y0, i.x1, i.y1,
                       color(i.color));
  }
  std::string operator()(const Triangle& i) const {
    return fmt::format("triangle {:.1f},{:.1f} {}", i.points[0], i.points[1], color(i.color));
  }
  std::string operator()(const Text& i) const {
    return fmt::format("text {:.1f},{:.1f} {} {}", i.x, i.y, color(i.color), i.text);
  }
  std::string operator()(const PlacedImage& i) const {
    return fmt::format("image {} {}x{}", box(i.box), i.image->width, i.image->height);
  }

  static std::string box(const Box& b) {
    return fmt::format("{:.1f},{:.1f} {:.1f}x{:.1f}", b.x, b.y, b.w, b.h);
  }
  static std::string color(const Color& c) {
    return fmt::format("#{:02x}{:02x}{:02x}{:02x}", c.r, c.g, c.b, c.a);
  }
};

}  // namespace

Box Box::take_top(float height) {
  height = std::min(height, h);
  const Box top{x, y, w, height};
  y += height;
  h -= height;
  return top;
}

Box Box::take_bottom(float height) {
  height = std::min(height, h);
  h -= height;
  return {x, y + h, w, height};
}

Box Box::take_left(float width) {
  width = std::min(width, w);
  const Box left{x, y, width, h};
  x += width;
  w -= width;
  return left;
}

Box Box::take_right(float width) {
  width = std::min(width, w);
  w -= width;
  return {x + w, y, width, h};
}

const Area* area_at(const Picture& picture, float x, float y) {
  for (size_t i = picture.areas.size(); i-- > 0;) {
    if (picture.areas[i].box.contains(x, y)) return &picture.areas[i];
  }
  return nullptr;
}

std::string to_text(const Picture& picture) {
  std::string text = fmt::format("picture {}x{}\n", picture.width, picture.height);
  for (const Item& item : picture.items) text += std::visit(Writer{}, item) + "\n";
  return text;
}

Fonts plain_fonts(double scale) {
  Fonts fonts;
  constexpr float kLetter = 0.56F;
  constexpr float kLine = 1.25F;
  for (size_t i = 0; i < kStyles; ++i) {
    fonts.heights[i] = kPoints[i] * kLine * static_cast<float>(scale);
  }
  fonts.width = [scale](Style style, std::string_view text) {
    const auto is_letter = [](unsigned char c) { return (c & 0xC0) != 0x80; };  // UTF-8
    return static_cast<float>(std::ranges::count_if(text, is_letter)) *
           kPoints[static_cast<size_t>(style)] * kLetter * static_cast<float>(scale);
  };
  return fonts;
}

}  // namespace shardlens::viewer
