// Images as PNG files.
#pragma once

#include <string>

#include "viewer/scene/picture.h"

namespace shardlens::viewer {

/// Opaque, in RGB. Written under another name and renamed. Throws std::runtime_error.
void write_png(const Image& image, const std::string& path);

}  // namespace shardlens::viewer
