// A picture as values: boxes, lines, texts, triangles and images, in the order in which they cover
// each other, in pixels of the target. It does not depend on the code that draws it.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace shardlens::viewer {

struct Color {
  uint8_t r = 0;
  uint8_t g = 0;
  uint8_t b = 0;
  uint8_t a = 255;

  bool operator==(const Color&) const = default;
  Color with_alpha(uint8_t alpha) const { return {r, g, b, alpha}; }
};

/// Returns the colour as OpenGL reads it on a little-endian machine: red in the lowest byte.
constexpr uint32_t packed(const Color& c) {
  return static_cast<uint32_t>(c.r) | static_cast<uint32_t>(c.g) << 8 |
         static_cast<uint32_t>(c.b) << 16 | static_cast<uint32_t>(c.a) << 24;
}

struct Box {
  float x = 0;
  float y = 0;
  float w = 0;
  float h = 0;

  float right() const { return x + w; }
  float bottom() const { return y + h; }
  bool contains(float px, float py) const {
    return px >= x && px < right() && py >= y && py < bottom();
  }
  Box inset(float by) const {
    return {x + by, y + by, std::max(0.F, w - 2 * by), std::max(0.F, h - 2 * by)};
  }
  /// Each of these cuts off one side and returns it; this box keeps the rest.
  Box take_top(float height);
  Box take_bottom(float height);
  Box take_left(float width);
  Box take_right(float width);
  bool operator==(const Box&) const = default;
};

/// Sizes and weights of text; `figure` is for the one main number of a card.
enum class Style : uint8_t { small, body, strong, title, figure };
constexpr int kStyles = 5;
constexpr std::array<float, kStyles> kPoints = {11.5F, 13, 13, 19, 17};

/// A mark at the left of an image: a place on an axis, or where a range of the axis begins.
struct ImageMark {
  double row = 0;  // from below
  std::string text;
  bool is_begin = false;
};

struct Image {
  int width = 0;
  int height = 0;
  std::vector<uint32_t> pixels;       // row by row
  std::string caption;                // what the picture must say about it
  std::vector<ImageMark> marks = {};  // and beside it
  uint64_t version = 0;               // differs if the content differs
  bool is_bottom_up = false;          // the first row is the lowest, as in OpenGL

  /// Returns the index of the first pixel of the row `y`, which counts from the top.
  size_t begin_of_row(int y) const {
    return static_cast<size_t>(is_bottom_up ? height - 1 - y : y) * static_cast<size_t>(width);
  }
  uint32_t at(int x, int y) const { return pixels[begin_of_row(y) + static_cast<size_t>(x)]; }
};

struct Fill {
  Box box;
  Color color;
  float radius = 0;
};
struct Outline {
  Box box;
  Color color;
  float radius = 0;
  float width = 1;
};
struct Line {
  float x0 = 0;
  float y0 = 0;
  float x1 = 0;
  float y1 = 0;
  Color color;
  float width = 1;
};
struct Triangle {
  std::array<float, 6> points{};  // x, y
  Color color;
};
struct Text {
  float x = 0;  // left
  float y = 0;  // top
  std::string text;
  Color color;
  Style style = Style::body;
};
struct PlacedImage {
  Box box;
  const Image* image = nullptr;  // owned by the maker of the picture
};
using Item = std::variant<Fill, Outline, Line, Triangle, Text, PlacedImage>;

/// A box in which the pointer does something.
struct Area {
  enum class Kind : uint8_t {
    lane,
    card,
    legend,    // shows and hides a category
    category,  // selects it
    minimap,
    alive_row,
    event_row,    // an allocation or a free
    failure,      // a request for memory that failed
    matched_row,  // a place of what is alive, or what changed in it
    control,
    lever,       // a row of the what-if panel
    lever_mark,  // marks it
    lever_act,   // runs it, stops it or opens its lane
    table,
    call,         // of the selected block's stack
    tree,         // the whole panel
    tree_choice,  // what it holds, groups by, starts from; its form
    tree_sort,    // a column head of the list
    frame,        // a node of the tree, in the flame graph
    place_row,    // a node of the tree, in the list
    folded_lane,  // a lane's line, which unfolds it
    ribbon,       // of actions; index: the rank
    gpu_work,     // the rows of streams; index: the rank
    lane_fold,
    lane_close,
    lane_bar,       // scrolls the lanes
    overview,       // the whole list of runs and ranks
    overview_row,   // index: the rank
    overview_sort,  // a column head
    tab,            // index: the FrontPanel that it shows
  };
  Box box;
  Kind kind{};
  size_t run = 0;    // for a control or a choice of the tree: its number
  size_t index = 0;  // rank of a lane, a category, row, call or node, choice of a control,
                     // lines of the lanes
};

struct Picture {
  int width = 0;
  int height = 0;
  std::vector<Item> items;
  std::vector<Area> areas;
};

/// Returns the topmost area under a point; nullptr if there is none.
const Area* area_at(const Picture& picture, float x, float y);

/// Returns every item in a line, images by their size: for tests and reports.
std::string to_text(const Picture& picture);

/// Measures text: the width of a text, and the line height of each style, in pixels.
struct Fonts {
  std::function<float(Style, std::string_view)> width;
  std::array<float, kStyles> heights{};

  float height(Style style) const { return heights[static_cast<size_t>(style)]; }
};

/// Returns a font with letters of equal width, for pictures that must not depend on the installed
/// fonts.
Fonts plain_fonts(double scale);

}  // namespace shardlens::viewer
