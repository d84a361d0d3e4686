#include "viewer/app/png.h"

#include <fmt/format.h>

// This file compiles the library itself, since not every distribution ships it built.
#define STB_IMAGE_WRITE_STATIC
#define STB_IMAGE_WRITE_IMPLEMENTATION
#include <stb/stb_image_write.h>

#include <filesystem>
#include <stdexcept>
#include <vector>

namespace shardlens::viewer {

void write_png(const Image& image, const std::string& path) {
  std::vector<uint8_t> bytes;
  bytes.reserve(image.pixels.size() * 3);
  for (const uint32_t pixel : image.pixels) {
    for (const int shift : {0, 8, 16}) bytes.push_back(static_cast<uint8_t>(pixel >> shift));
  }
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

}  // namespace shardlens::viewer
