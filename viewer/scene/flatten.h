// Draws all of a picture except its text into one image. Software OpenGL fills a pixel some ten
// times slower than the processor does, and a picture covers itself several times over.
#pragma once

#include <vector>

#include "viewer/paint/picture.h"

namespace shardlens::viewer {

/// Draws the picture's items into `image`, which is opaque if the picture's first item covers the
/// whole image. Edges of round corners and triangles are smooth. Reuses the memory of `image` and
/// keeps the order of its rows; the caller changes its version.
void flatten(const Picture& picture, Image& image);

}  // namespace shardlens::viewer
