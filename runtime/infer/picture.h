// Draws a picture as text: blocks of grey on a terminal, characters elsewhere. No LibTorch.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace shardlens::runtime {

struct GreyPicture {
  int64_t height = 0;
  int64_t width = 0;
  std::vector<float> light;  // [height, width], from 0 to 1
};

/// Returns one line per two rows, in half blocks in 24 grey levels of the terminal's 256 colours.
/// Larger pictures are averaged down to 56 columns.
std::string picture_for_terminal(const GreyPicture& picture);

/// Returns one line per row, two characters per pixel, denser characters for more light. ASCII.
std::string picture_as_text(const GreyPicture& picture);

}  // namespace shardlens::runtime
