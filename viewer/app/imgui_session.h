// Owns ImGui's context and its renderer, in a current GL context.
#pragma once

#include <string>

#include "viewer/paint/picture.h"
#include "viewer/ui/fonts.h"

namespace shardlens::viewer {

class ImGuiSession {
 public:
  /// Throws std::invalid_argument for a font that cannot be read.
  explicit ImGuiSession(std::string font_file);
  ~ImGuiSession();
  ImGuiSession(const ImGuiSession&) = delete;
  ImGuiSession& operator=(const ImGuiSession&) = delete;

  FontSet& fonts() { return fonts_; }
  /// Rebuilds the fonts if the scale has changed. Call it between frames.
  void set_scale(double scale);
  /// Draws the frame that was just built, which covers the whole target.
  void render();

 private:
  std::string font_file_;
  FontSet fonts_;
};

}  // namespace shardlens::viewer
