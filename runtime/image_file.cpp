#include "runtime/image_file.h"

#define STB_IMAGE_IMPLEMENTATION
#define STB_IMAGE_STATIC
#define STBI_ONLY_PNG
#define STBI_ONLY_JPEG
#define STBI_NO_LINEAR
#define STBI_MAX_DIMENSIONS 32768  // above any photograph; a forged header costs no gigabytes
#include <stb/stb_image.h>

#include <memory>
#include <stdexcept>

namespace shardlens::runtime {

DecodedImage decode_image(const std::string& path, int64_t channels) {
  int width = 0, height = 0, channels_in_file = 0;
  const std::unique_ptr<stbi_uc, void (*)(void*)> pixels(
      stbi_load(path.c_str(), &width, &height, &channels_in_file, static_cast<int>(channels)),
      stbi_image_free);
  if (pixels == nullptr) {
    throw std::runtime_error(path + ": cannot be read as an image (" + stbi_failure_reason() +
                             "); mend the file or remove it");
  }
  const auto bytes = static_cast<size_t>(width) * static_cast<size_t>(height * channels);
  return {height, width, {pixels.get(), pixels.get() + bytes}};
}

}  // namespace shardlens::runtime
