#include "viewer/figure/figure_path.h"

#include <algorithm>
#include <cmath>

namespace shardlens::viewer {

Image image_at(const PlacedImage& placed) {
  const Image& from = *placed.image;
  Image to;
  to.width = std::max(1, static_cast<int>(std::lround(placed.box.w)));
  to.height = std::max(1, static_cast<int>(std::lround(placed.box.h)));
  to.pixels.reserve(static_cast<size_t>(to.width) * static_cast<size_t>(to.height));
  for (int y = 0; y < to.height; ++y) {
    for (int x = 0; x < to.width; ++x) {
      to.pixels.push_back(from.at(x * from.width / to.width, y * from.height / to.height));
    }
  }
  return to;
}

}  // namespace shardlens::viewer
