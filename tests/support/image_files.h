// Small image files and folders of them, written by stb_image_write.
#pragma once

#include <cstdint>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <vector>

#define STB_IMAGE_WRITE_IMPLEMENTATION
#define STB_IMAGE_WRITE_STATIC
#include <stb/stb_image_write.h>

namespace shardlens::tests {

struct Picture {
  int width = 0;
  int height = 0;
  int channels = 3;
  std::vector<uint8_t> pixels = std::vector<uint8_t>(
      static_cast<size_t>(width) * static_cast<size_t>(height) * static_cast<size_t>(channels));

  uint8_t& at(int y, int x, int channel) {
    return pixels[static_cast<size_t>((y * width + x) * channels + channel)];
  }
};

/// `path` ends in .png or .jpg; the folders above it are made.
inline void write_picture(const std::string& path, const Picture& picture) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  const int written =
      path.ends_with(".jpg")
          ? stbi_write_jpg(path.c_str(), picture.width, picture.height, picture.channels,
                           picture.pixels.data(), /*quality=*/95)
          : stbi_write_png(path.c_str(), picture.width, picture.height, picture.channels,
                           picture.pixels.data(), picture.width * picture.channels);
  if (written == 0) throw std::runtime_error("cannot write " + path);
}

/// All of one colour.
inline Picture plain_picture(int width, int height, uint8_t red, uint8_t green, uint8_t blue) {
  Picture picture{.width = width, .height = height};
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) {
      picture.at(y, x, 0) = red;
      picture.at(y, x, 1) = green;
      picture.at(y, x, 2) = blue;
    }
  }
  return picture;
}

}  // namespace shardlens::tests
