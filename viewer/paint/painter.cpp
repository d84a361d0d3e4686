#include "viewer/paint/painter.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
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

void Painter::card(const Box& box, const Color& edge) {
  fill(box, colors.card, px(5));
  outline(box, edge, px(5));
}

void Painter::swatch(Box& line, const Color& color) {
  const Box place = line.take_left(px(14));
  fill({place.x, place.y + place.h / 2 - px(4.5F), px(9), px(9)}, color, px(2));
}

void Painter::triangle(float x, float y, float size, bool up, const Color& color) {
  const float half = size / 2;
  const float base = up ? y + half : y - half;
  const float tip = up ? y - half : y + half;
  picture_.items.emplace_back(Triangle{{x, base, x + size, base, x + half, tip}, color});
}

void Painter::image(const Box& box, const Image& image) {
  if (image.width > 0 && image.height > 0) picture_.items.emplace_back(PlacedImage{box, &image});
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

Box Painter::text_lines(Box box, std::string_view text, const Color& color, Style style) {
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
  return box;
}

namespace {

/// Returns true for the second and later bytes of a character, before which no text is cut.
bool is_inside_character(std::string_view text, size_t at) {
  return at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80;
}

/// Returns the longest fitting text among those that `cut_to` makes of 0 to `size` bytes.
std::string longest_cut(size_t size, const std::function<std::string(size_t)>& cut_to,
                        const std::function<bool(const std::string&)>& is_fitting) {
  size_t fits = 0;
  for (size_t too_long = size; too_long - fits > 1;) {
    const size_t middle = fits + (too_long - fits) / 2;
    (is_fitting(cut_to(middle)) ? fits : too_long) = middle;
  }
  return cut_to(fits);
}

}  // namespace

std::string Painter::fitted(Style style, std::string_view text, float width) const {
  const auto is_fitting = [&](std::string_view cut) { return this->width(style, cut) <= width; };
  if (is_fitting(text)) return std::string(text);
  const auto cut_to = [text](size_t bytes) {
    while (bytes > 0 && is_inside_character(text, bytes)) --bytes;
    return bytes == 0 ? "" : std::string(text.substr(0, bytes)) + "...";
  };
  return longest_cut(text.size(), cut_to, is_fitting);
}

std::string Painter::fitted_ends(Style style, std::string_view text, float width) const {
  const auto is_fitting = [&](std::string_view cut) { return this->width(style, cut) <= width; };
  if (is_fitting(text)) return std::string(text);
  const auto cut_to = [text](size_t bytes) {
    size_t begin = (bytes + 1) / 2;
    size_t end = text.size() - bytes / 2;
    while (begin > 0 && is_inside_character(text, begin)) --begin;
    while (is_inside_character(text, end)) ++end;
    return begin == 0 ? "" : fmt::format("{}...{}", text.substr(0, begin), text.substr(end));
  };
  return longest_cut(text.size(), cut_to, is_fitting);
}

namespace {

/// Returns the length of "llama.py:314" in "llama.py:314 forward"; 0 if the text is not a place.
size_t length_of_line(std::string_view text) {
  constexpr std::string_view kDigits = "0123456789";
  for (size_t colon = text.find(':'); colon != text.npos; colon = text.find(':', colon + 1)) {
    const size_t end = std::min(text.find_first_not_of(kDigits, colon + 1), text.size());
    const bool is_line = end > colon + 1 && (end == text.size() || text[end] == ' ');
    if (is_line && colon > 0) return end;
  }
  return 0;
}

}  // namespace

std::string Painter::fitted_end(Style style, std::string_view text, float width) const {
  const auto is_fitting = [&](std::string_view cut) { return this->width(style, cut) <= width; };
  if (is_fitting(text)) return std::string(text);
  const auto cut_to = [text](size_t bytes) {
    size_t begin = text.size() - bytes;
    while (is_inside_character(text, begin)) ++begin;
    return begin == text.size() ? "" : "..." + std::string(text.substr(begin));
  };
  return longest_cut(text.size(), cut_to, is_fitting);
}

std::string Painter::fitted_place(Style style, std::string_view text, float width) const {
  const size_t line = length_of_line(text);
  if (line == 0) return fitted_ends(style, text, width);
  const std::string cut = fitted(style, text, width);
  if (cut == text || cut.size() >= line + 3) return cut;  // "..." follows the line
  const std::string_view place = text.substr(0, line);
  return this->width(style, place) <= width ? std::string(place) : fitted_end(style, place, width);
}

}  // namespace shardlens::viewer
