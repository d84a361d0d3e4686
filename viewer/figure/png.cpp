#include "viewer/figure/png.h"

#include <fmt/format.h>

// This file compiles the library itself, since not every distribution ships it built.
#define STB_IMAGE_WRITE_STATIC
#define STB_IMAGE_WRITE_IMPLEMENTATION
#include <stb/stb_image_write.h>

#include <algorithm>
#include <filesystem>
#include <stdexcept>
#include <vector>

namespace shardlens::viewer {

namespace {

/// Returns the channels of all pixels, row by row from the top.
std::vector<uint8_t> channels_of(const Image& image, int channels) {
  std::vector<uint8_t> bytes;
  bytes.reserve(image.pixels.size() * static_cast<size_t>(channels));
  for (int y = 0; y < image.height; ++y) {
    for (int x = 0; x < image.width; ++x) {
      const uint32_t pixel = image.at(x, y);
      for (int i = 0; i < channels; ++i) bytes.push_back(static_cast<uint8_t>(pixel >> 8 * i));
    }
  }
  return bytes;
}

}  // namespace

void write_png(const Image& image, const std::string& path) {
  const std::vector<uint8_t> bytes = channels_of(image, 3);
  const std::string partial = path + ".partial";
  const bool is_written = stbi_write_png(partial.c_str(), image.width, image.height, 3,
                                         bytes.data(), 3 * image.width) != 0;
  std::error_code error;
  if (is_written) std::filesystem::rename(partial, path, error);
  if (!is_written || error) {
    std::filesystem::remove(partial, error);
    throw std::runtime_error(
        fmt::format("{}: cannot write this picture; choose a folder that can be written", path));
  }
}

std::string png_of(const Image& image) {
  const auto is_opaque = [](uint32_t pixel) { return pixel >> 24 == 0xFF; };
  const int channels = std::ranges::all_of(image.pixels, is_opaque) ? 3 : 4;
  const std::vector<uint8_t> bytes = channels_of(image, channels);
  std::string png;
  const auto append = [](void* to, void* data, int size) {
    static_cast<std::string*>(to)->append(static_cast<const char*>(data),
                                          static_cast<size_t>(size));
  };
  const int stride = channels * image.width;
  if (stbi_write_png_to_func(append, &png, image.width, image.height, channels, bytes.data(),
                             stride) == 0) {
    throw std::runtime_error("cannot compress a picture: out of memory");
  }
  return png;
}

}  // namespace shardlens::viewer
