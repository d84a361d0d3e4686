#include <algorithm>
#include <memory>
#include <stdexcept>
#include <string>

#include "models/data/image_codecs.h"

#define STB_IMAGE_IMPLEMENTATION
#define STB_IMAGE_STATIC
#define STBI_ONLY_PNG
#define STBI_NO_LINEAR
#define STBI_NO_STDIO
#define STBI_MAX_DIMENSIONS 65536
#include <stb/stb_image.h>

namespace shardlens::models {

namespace {

/// A deflated byte stands for up to 1032 bytes, and a byte of a row for eight pixels of one bit.
constexpr int64_t kMostPngPixelsAByte = 1032 * 8;

[[noreturn]] void refuse_png() {
  const char* const reason = stbi_failure_reason();
  throw std::invalid_argument(reason == nullptr ? "it is damaged" : reason);
}

uint32_t big_endian(std::string_view bytes) {
  uint32_t number = 0;
  for (const char byte : bytes.substr(0, 4)) number = number << 8 | static_cast<uint8_t>(byte);
  return number;
}

/// Throws if a chunk is cut off, because stb_image takes memory for what a chunk claims before it
/// checks that the bytes exist.
void expect_whole_chunks(std::string_view bytes) {
  constexpr size_t kSignatureBytes = 8, kHeadBytes = 8, kChecksumBytes = 4;
  std::string_view rest = bytes.substr(std::min(bytes.size(), kSignatureBytes));
  while (rest.size() >= kHeadBytes) {
    const size_t chunk_bytes = big_endian(rest);
    const bool is_last = rest.substr(4, 4) == "IEND";
    rest.remove_prefix(kHeadBytes);
    if (chunk_bytes > rest.size()) throw std::invalid_argument("it ends inside a chunk");
    if (is_last) return;
    rest.remove_prefix(std::min(rest.size(), chunk_bytes + kChecksumBytes));
  }
}

}  // namespace

DecodedImage decode_png(std::string_view bytes) {
  constexpr int kColours = 3;
  expect_whole_chunks(bytes);
  const auto* const data = reinterpret_cast<const stbi_uc*>(bytes.data());
  const int size = static_cast<int>(bytes.size());
  int width = 0, height = 0, channels_in_file = 0;
  if (stbi_info_from_memory(data, size, &width, &height, &channels_in_file) == 0) refuse_png();
  check_image_size(width, height, size, kMostPngPixelsAByte);
  const std::unique_ptr<stbi_uc, void (*)(void*)> pixels(
      stbi_load_from_memory(data, size, &width, &height, &channels_in_file, kColours),
      stbi_image_free);
  if (pixels == nullptr) refuse_png();
  const auto pixel_bytes = static_cast<size_t>(width) * static_cast<size_t>(height) * kColours;
  return {height, width, {pixels.get(), pixels.get() + pixel_bytes}};
}

}  // namespace shardlens::models
