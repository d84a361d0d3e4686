// Writes a picture as SVG 1.1.
#pragma once

#include <string>

#include "viewer/figure/figure_path.h"

namespace shardlens::viewer {

/// Returns the text of the file. Boxes, lines and letters are vectors; the contents of plots are
/// images.
std::string svg_of(const Picture& picture, const FigureSize& size, const Outliner& outliner);

}  // namespace shardlens::viewer
