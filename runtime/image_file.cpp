#include "runtime/image_file.h"

#include <fmt/format.h>

#include "input/input_file.h"
#include "input/limits.h"
#include "input/shown.h"

#define STB_IMAGE_IMPLEMENTATION
#define STB_IMAGE_STATIC
#define STBI_ONLY_PNG
#define STBI_ONLY_JPEG
#define STBI_NO_LINEAR
#define STBI_NO_STDIO
#define STBI_MAX_DIMENSIONS 65536
#include <stb/stb_image.h>

#include <memory>
#include <stdexcept>
#include <string_view>

namespace shardlens::runtime {
namespace {

/// A byte of a deflated row of one-bit pixels: nothing that is read here holds more.
constexpr int64_t kMostPixelsAByte = 1032 * 8;

[[noreturn]] void refuse(const std::string& path, std::string_view why) {
  throw std::invalid_argument(fmt::format("{}: cannot be read as an image ({}); fix or remove it",
                                          input::shown(path), why));
}

/// stb_image does not always say why.
std::string_view fault_of_decoder() {
  const char* const reason = stbi_failure_reason();
  return reason == nullptr ? "it is damaged" : reason;
}

/// Decided from the header, before a pixel is decoded.
void check_size(const std::string& path, int64_t width, int64_t height, int64_t file_bytes) {
  const int64_t pixels = width * height;
  if (pixels > input::kMostImagePixels) {
    refuse(path, fmt::format("{} x {} pixels; at most {} in all are decoded", width, height,
                             input::kMostImagePixels));
  }
  if (pixels / kMostPixelsAByte > file_bytes) {
    refuse(path,
           fmt::format("it claims {} x {} pixels and has {} bytes", width, height, file_bytes));
  }
}

}  // namespace

DecodedImage decode_image(const std::string& path, int64_t channels) {
  const input::FileText file = input::read_file(path, input::kMostImageBytes);
  if (!file.problem.empty()) refuse(path, file.problem);
  const auto* const bytes = reinterpret_cast<const stbi_uc*>(file.text.data());
  const int size = static_cast<int>(file.text.size());
  int width = 0, height = 0, channels_in_file = 0;
  if (stbi_info_from_memory(bytes, size, &width, &height, &channels_in_file) == 0) {
    refuse(path, fault_of_decoder());
  }
  check_size(path, width, height, size);
  const std::unique_ptr<stbi_uc, void (*)(void*)> pixels(
      stbi_load_from_memory(bytes, size, &width, &height, &channels_in_file,
                            static_cast<int>(channels)),
      stbi_image_free);
  if (pixels == nullptr) refuse(path, fault_of_decoder());
  const auto pixel_bytes = static_cast<size_t>(width) * static_cast<size_t>(height * channels);
  return {height, width, {pixels.get(), pixels.get() + pixel_bytes}};
}

}  // namespace shardlens::runtime
