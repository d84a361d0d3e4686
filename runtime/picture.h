// A picture as text: blocks of grey where a terminal shows them, characters elsewhere. No LibTorch.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace shardlens::runtime {

struct Picture {
  int64_t height = 0;
  int64_t width = 0;
  std::vector<float> light;  // [height, width], from 0 to 1
};

/// One line a pair of rows, of half blocks in 24 grey levels of the terminal's 256 colours; larger
/// pictures are averaged down to 56 columns.
std::string picture_for_terminal(const Picture& picture);

/// One line a row, two characters a pixel, darker characters for more light. ASCII.
std::string picture_as_text(const Picture& picture);

}  // namespace shardlens::runtime
