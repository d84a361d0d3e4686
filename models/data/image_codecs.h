// Declares one decoder per format, each with the library that reads it best. `bytes` are those of a
// whole file, and pixels are [height, width, 3], as Pillow decodes them. Each throws
// std::invalid_argument that says what is wrong, and names no file: image_file.h does.
#pragma once

#include <cstdint>
#include <string_view>

#include "models/data/image_file.h"

namespace shardlens::models {

/// Throws if an image has too many pixels to be decoded, or more than the file's bytes can hold.
/// Decoders call it with what the header claims, before they take memory for the pixels.
void check_image_size(int64_t width, int64_t height, int64_t file_bytes,
                      int64_t most_pixels_a_byte);

bool is_jpeg(std::string_view bytes);

/// Decodes with libjpeg-turbo. Damage that it could repair is an error, since it would be trained
/// on.
DecodedImage decode_jpeg(std::string_view bytes);

/// Decodes with stb_image. Transparency is left out.
DecodedImage decode_png(std::string_view bytes);

}  // namespace shardlens::models
