// Loads fonts: a system typeface if one is found, else ImGui's own. Sizes follow the scale.
#pragma once

#include <array>
#include <string>

#include "viewer/paint/picture.h"

struct ImFont;

namespace shardlens::viewer {

class FontSet {
 public:
  /// Replaces the fonts of the current ImGui context; the caller must then rebuild the window's
  /// font texture. An empty `file` means a system typeface. Throws std::invalid_argument if `file`
  /// cannot be read.
  void build(const std::string& file, double scale);

  ImFont* font(Style style) const { return fonts_[static_cast<size_t>(style)]; }
  const Fonts& metrics() const { return metrics_; }
  double scale() const { return scale_; }

 private:
  std::array<ImFont*, kStyles> fonts_{};
  Fonts metrics_;
  double scale_ = 0;
};

}  // namespace shardlens::viewer
