// Decodes image files into pixels. No LibTorch, safe from any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace shardlens::models {

struct DecodedImage {
  int64_t height = 0;
  int64_t width = 0;
  std::vector<uint8_t> pixels;  // [height, width, channels]
};

/// Returns the pixels of an image file. `channels` is 1 (grey) or 3. Throws std::invalid_argument
/// with one line that names the file and what is wrong with it; trying again would not help. Images
/// of more than kMostImagePixels, or of more than their bytes can hold, are refused before
/// they are decoded.
DecodedImage decode_image(const std::string& path, int64_t channels);

}  // namespace shardlens::models
