// Everything of a picture but its text, as one image. A software OpenGL fills a pixel some ten
// times slower than the processor does, and a picture covers itself several times over.
#pragma once

#include <vector>

#include "viewer/scene/picture.h"

namespace shardlens::viewer {

/// Opaque where the picture's first item covers all of it. Edges of round corners and triangles are
/// smooth. Reuses the memory of `image`, whose version is the caller's to change.
void flatten(const Picture& picture, Image& image);

}  // namespace shardlens::viewer
