// Writes images as PNG files.
#pragma once

#include <string>

#include "viewer/paint/picture.h"

namespace shardlens::viewer {

/// Writes the image, opaque and in RGB, under another name, then renames it. Throws
/// std::runtime_error if it cannot.
void write_png(const Image& image, const std::string& path);

/// Returns the bytes of the same file, or of one in RGBA if a pixel is not opaque.
std::string png_of(const Image& image);

}  // namespace shardlens::viewer
