#include "viewer/paint/painter.h"

#include <algorithm>
#include <cmath>
#include <sstream>
#include <utility>

namespace shardlens::viewer {

void Painter::fill(const Box& box, const Color& color, float radius) {
  picture_.items.emplace_back(Fill{box, color, radius});
}

void Painter::outline(const Box& box, const Color& color, float radius, float points) {
  picture_.items.emplace_back(Outline{box, color, radius, px(points)});
}

void Painter::line(float x0, float y0, float x1, float y1, const Color& color, float points) {
  picture_.items.emplace_back(Line{x0, y0, x1, y1, color, px(points)});
}

void Painter::triangle(float x, float y, float size, bool up, const Color& color) {
  const float half = size / 2;
  const float base = up ? y + half : y - half;
  const float tip = up ? y - half : y + half;
  picture_.items.emplace_back(Triangle{{x, base, x + size, base, x + half, tip}, color});
}

void Painter::image(const Box& box, const Image& image) {
  if (image.width > 0 && image.height > 0) picture_.items.emplace_back(Placed{box, &image});
}

void Painter::put(float x, const Box& box, std::string text, const Color& color, Style style) {
  if (text.empty()) return;
  const float y = box.y + (box.h - height(style)) / 2;
  // Texts begin at whole pixels, so that letters are sharp and the same on every machine.
  picture_.items.emplace_back(Text{std::round(x), std::round(y), std::move(text), color, style});
}

float Painter::text(const Box& box, std::string_view text, const Color& color, Style style) {
  std::string shown = fitted(style, text, box.w);
  const float end = box.x + width(style, shown);
  put(box.x, box, std::move(shown), color, style);
  return end;
}

void Painter::text_that_fits(const Box& box, const std::vector<std::string>& texts,
                             const Color& color, Style style) {
  const auto fits = [&](const std::string& text) { return width(style, text) <= box.w; };
  const auto first = std::ranges::find_if(texts, fits);
  this->text(box, first == texts.end() ? texts.back() : *first, color, style);
}

float Painter::text_right(const Box& box, std::string_view text, const Color& color, Style style) {
  std::string shown = fitted(style, text, box.w);
  const float begin = box.right() - width(style, shown);
  put(begin, box, std::move(shown), color, style);
  return begin;
}

void Painter::text_middle(const Box& box, std::string_view text, const Color& color, Style style) {
  std::string shown = fitted(style, text, box.w);
  const float begin = box.x + (box.w - width(style, shown)) / 2;
  put(begin, box, std::move(shown), color, style);
}

void Painter::text_lines(Box box, std::string_view text, const Color& color, Style style) {
  std::istringstream words{std::string(text)};
  std::string line;
  const auto put_line = [&] {
    if (box.h >= height(style)) this->text(box.take_top(height(style)), line, color, style);
    line.clear();
  };
  for (std::string word; words >> word;) {
    const std::string longer = line.empty() ? word : line + " " + word;
    if (!line.empty() && width(style, longer) > box.w) {
      put_line();
      line = word;
    } else {
      line = longer;
    }
  }
  put_line();
}

std::string Painter::fitted(Style style, std::string_view text, float width) const {
  if (this->width(style, text) <= width) return std::string(text);
  const auto cut_to = [text](size_t bytes) {
    // A character of several bytes is not split.
    while (bytes > 0 && (static_cast<unsigned char>(text[bytes]) & 0xC0) == 0x80) --bytes;
    return bytes == 0 ? "" : std::string(text.substr(0, bytes)) + "...";
  };
  size_t fits = 0;
  for (size_t too_long = text.size(); too_long - fits > 1;) {
    const size_t middle = fits + (too_long - fits) / 2;
    (this->width(style, cut_to(middle)) <= width ? fits : too_long) = middle;
  }
  return cut_to(fits);
}

}  // namespace shardlens::viewer
