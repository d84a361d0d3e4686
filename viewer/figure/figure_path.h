// An outline that is filled: the letters of a figure are drawn as their outlines, so that they look
// the same in every program, whatever fonts it has.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "viewer/paint/picture.h"

namespace shardlens::viewer {

/// A step of an outline, in pixels of the picture. A `move` begins a contour; every contour is
/// closed, and what is inside by the nonzero winding rule is filled.
struct PathStep {
  enum class Kind : uint8_t { move, line, curve } kind{};
  float x = 0;
  float y = 0;
  float control_x = 0;  // of a quadratic curve
  float control_y = 0;
};
using Path = std::vector<PathStep>;

/// Returns the outlines of all letters of a text where it stands in the picture.
using Outliner = std::function<Path(const Text& text)>;

/// The size of a figure in points; the picture has more pixels.
struct FigureSize {
  double width = 0;
  double height = 0;
};

/// Returns the image with as many pixels as its box has: rows of a ribbon are repeated, not
/// smoothed.
Image image_at(const PlacedImage& placed);

}  // namespace shardlens::viewer
