#include "models/data/image_file.h"

#include <fmt/format.h>

#include <stdexcept>
#include <string_view>

#include "base/input_file.h"
#include "base/limits.h"
#include "base/shown.h"
#include "models/data/image_codecs.h"

namespace shardlens::models {
namespace {

[[noreturn]] void refuse_image(const std::string& path, std::string_view why) {
  throw std::invalid_argument(
      fmt::format("{}: cannot be read as an image ({}); fix or remove it", shown(path), why));
}

/// Returns ITU-R 601's brightness, computed in units of 2^-16 and rounded, as Pillow's "L".
uint8_t grey_of(const uint8_t* colours) {
  constexpr uint32_t kRed = 19595, kGreen = 38470, kBlue = 7471, kHalf = 1 << 15;
  return static_cast<uint8_t>(
      (kRed * colours[0] + kGreen * colours[1] + kBlue * colours[2] + kHalf) >> 16);
}

void make_grey(DecodedImage& image) {
  const size_t count = image.pixels.size() / 3;
  for (size_t i = 0; i < count; ++i) image.pixels[i] = grey_of(&image.pixels[3 * i]);
  image.pixels.resize(count);
}

}  // namespace

void check_image_size(int64_t width, int64_t height, int64_t file_bytes,
                      int64_t most_pixels_a_byte) {
  const int64_t pixels = width * height;
  if (pixels > kMostImagePixels) {
    throw std::invalid_argument(fmt::format("{} x {} pixels; at most {} in all are decoded", width,
                                            height, kMostImagePixels));
  }
  if (pixels / most_pixels_a_byte > file_bytes) {
    throw std::invalid_argument(
        fmt::format("it claims {} x {} pixels and has {} bytes", width, height, file_bytes));
  }
}

DecodedImage decode_image(const std::string& path, int64_t channels) {
  const FileText file = read_file(path, kMostImageBytes);
  if (file.problem) refuse_image(path, *file.problem);
  try {
    DecodedImage image = is_jpeg(file.text) ? decode_jpeg(file.text) : decode_png(file.text);
    if (channels == 1) make_grey(image);
    return image;
  } catch (const std::invalid_argument& fault) {
    refuse_image(path, fault.what());
  }
}

}  // namespace shardlens::models
