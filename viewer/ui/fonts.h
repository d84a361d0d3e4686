// Loads fonts: a typeface of the system if one is found, else ImGui's own. Sizes follow the scale.
#pragma once

#include <array>
#include <string>

#include "viewer/paint/picture.h"

struct ImFont;

namespace shardlens::viewer {

class FontSet {
 public:
  /// Replaces the fonts of the current ImGui context; the caller must then make the window's
  /// texture of them anew. An empty `file` means a typeface of the system. Throws
  /// std::invalid_argument if `file` cannot be read.
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
