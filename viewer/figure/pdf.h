// Writes a picture as a PDF 1.4 of one page.
#pragma once

#include <string>

#include "viewer/figure/figure_path.h"

namespace shardlens::viewer {

/// Returns the bytes of the file. Boxes, lines and letters are vectors, and no font is needed; the
/// contents of plots are images.
std::string pdf_of(const Picture& picture, const FigureSize& size, const Outliner& outliner);

}  // namespace shardlens::viewer
