// Adds items to a picture: all text and boxes are drawn with a Painter.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "viewer/paint/picture.h"
#include "viewer/paint/theme.h"

namespace shardlens::viewer {

class Painter {
 public:
  Painter(Picture& picture, const Fonts& fonts, const Colors& colors, double scale)
      : colors(colors), picture_(picture), fonts_(fonts), scale_(static_cast<float>(scale)) {}

  /// Converts points to pixels.
  float px(float points) const { return points * scale_; }
  float width(Style style, std::string_view text) const { return fonts_.width(style, text); }
  float height(Style style) const { return fonts_.height(style); }

  void fill(const Box& box, const Color& color, float radius = 0);
  void outline(const Box& box, const Color& color, float radius = 0, float points = 1);
  void line(float x0, float y0, float x1, float y1, const Color& color, float points = 1);
  /// Draws the background of a panel, with an edge of the given colour.
  void card(const Box& box, const Color& edge);
  /// Cuts off the left end of a list's line, and draws the colour of the line's subject there.
  void swatch(Box& line, const Color& color);
  /// Draws a triangle that points up or down, as high as it is wide.
  void triangle(float x, float y, float size, bool up, const Color& color);
  void image(const Box& box, const Image& image);
  void area(const Area& area) { picture_.areas.push_back(area); }

  /// Draws a text at the left of the box, vertically centred, cut to the box's width. Returns the x
  /// at which the text ends.
  float text(const Box& box, std::string_view text, const Color& color, Style style = Style::body);
  /// Draws the first of the texts that fits the box; if none does, cuts the last.
  void text_that_fits(const Box& box, const std::vector<std::string>& texts, const Color& color,
                      Style style);
  float text_right(const Box& box, std::string_view text, const Color& color,
                   Style style = Style::body);
  void text_middle(const Box& box, std::string_view text, const Color& color,
                   Style style = Style::body);
  /// Draws a text from the top of the box, broken between words, in as many lines as fit the box.
  /// Returns the rest of the box.
  Box text_lines(Box box, std::string_view text, const Color& color, Style style);
  /// Returns the text, shortened with "..." if it is too long.
  std::string fitted(Style style, std::string_view text, float width) const;
  /// Returns the text, shortened with "..." in its middle if it is too long, for names that differ
  /// at their ends: "block0-9 bu...exp_avg_sq".
  std::string fitted_ends(Style style, std::string_view text, float width) const;
  /// Returns a place, "llama.py:314 forward", shortened if it is too long: its function is cut
  /// first, then the beginning of its file, never its line. Other names are cut in the middle.
  std::string fitted_place(Style style, std::string_view text, float width) const;
  /// Returns the text, shortened with "..." at its beginning if it is too long.
  std::string fitted_end(Style style, std::string_view text, float width) const;

  const Colors& colors;

 private:
  void put(float x, const Box& box, std::string text, const Color& color, Style style);

  Picture& picture_;
  const Fonts& fonts_;
  float scale_;
};

}  // namespace shardlens::viewer
