// Keeps ImGui's context with its renderer, for as long as the object lives, in a current GL
// context.
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
  /// Makes the fonts anew if the scale has changed. Call it between frames.
  void set_scale(double scale);
  /// Draws the frame that was just built, which covers all of the target.
  void render();

 private:
  std::string font_file_;
  FontSet fonts_;
};

}  // namespace shardlens::viewer
