// A written PNG picture: its size and its colours.
#pragma once

#include <catch2/catch_test_macros.hpp>
#include <set>
#include <string>

#define STB_IMAGE_STATIC
#define STB_IMAGE_IMPLEMENTATION
#include <stb/stb_image.h>

namespace shardlens::viewer {

struct Pixels {
  int width = 0;
  int height = 0;
  std::set<unsigned> colors;
};

inline Pixels pixels_of(const std::string& path) {
  Pixels pixels;
  int channels = 0;
  stbi_uc* const bytes = stbi_load(path.c_str(), &pixels.width, &pixels.height, &channels, 3);
  REQUIRE(bytes != nullptr);
  for (int i = 0; i < pixels.width * pixels.height; ++i) {
    pixels.colors.insert(static_cast<unsigned>(bytes[3 * i]) << 16 |
                         static_cast<unsigned>(bytes[3 * i + 1]) << 8 | bytes[3 * i + 2]);
  }
  stbi_image_free(bytes);
  return pixels;
}

}  // namespace shardlens::viewer
