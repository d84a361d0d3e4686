#include "runtime/infer/picture.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

namespace shardlens::runtime {

namespace {

constexpr int64_t kMostColumns = 56;

/// Averages squares of pixels, as large as needed to make the picture narrow enough.
GreyPicture narrowed(const GreyPicture& picture) {
  const int64_t square = (picture.width + kMostColumns - 1) / kMostColumns;
  if (square <= 1) return picture;
  GreyPicture small{.height = std::max<int64_t>(1, picture.height / square),
                    .width = std::max<int64_t>(1, picture.width / square),
                    .light = {}};
  for (int64_t y = 0; y < small.height; ++y) {
    for (int64_t x = 0; x < small.width; ++x) {
      float sum = 0;
      int64_t count = 0;
      for (int64_t sy = y * square; sy < std::min((y + 1) * square, picture.height); ++sy) {
        for (int64_t sx = x * square; sx < std::min((x + 1) * square, picture.width); ++sx) {
          sum += picture.light[static_cast<size_t>(sy * picture.width + sx)];
          ++count;
        }
      }
      small.light.push_back(sum / static_cast<float>(count));
    }
  }
  return small;
}

/// Returns a pixel's brightness, which is 0 below the last row.
float light_at(const GreyPicture& picture, int64_t y, int64_t x) {
  if (y >= picture.height) return 0;
  return std::clamp(picture.light[static_cast<size_t>(y * picture.width + x)], 0.0F, 1.0F);
}

/// Returns the terminal's colour for a grey. Of its 256 colours, the greys are 232 to 255.
int grey(float light) { return 232 + static_cast<int>(light * 23.0F + 0.5F); }

}  // namespace

std::string picture_for_terminal(const GreyPicture& picture) {
  const GreyPicture small = narrowed(picture);
  std::string text;
  for (int64_t y = 0; y < small.height; y += 2) {
    for (int64_t x = 0; x < small.width; ++x) {
      text += fmt::format("\x1b[38;5;{};48;5;{}m\u2580", grey(light_at(small, y, x)),
                          grey(light_at(small, y + 1, x)));
    }
    text += "\x1b[0m\n";
  }
  return text;
}

std::string picture_as_text(const GreyPicture& picture) {
  constexpr std::string_view kRamp = " .:-=+*#%@";
  const GreyPicture small = narrowed(picture);
  std::string text;
  for (int64_t y = 0; y < small.height; ++y) {
    std::string line;
    for (int64_t x = 0; x < small.width; ++x) {
      const auto step = static_cast<size_t>(light_at(small, y, x) * 9.0F + 0.5F);
      line.append(2, kRamp[step]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

}  // namespace shardlens::runtime
