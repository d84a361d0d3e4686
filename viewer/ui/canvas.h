// Draws a picture with ImGui: one image that fills the target, and text over it.
#pragma once

#include "viewer/scene/picture.h"
#include "viewer/ui/fonts.h"

struct ImDrawList;

namespace shardlens::viewer {

/// Brings an image to where the graphics card can read it, and from there to the target.
class Backdrop {
 public:
  virtual ~Backdrop() = default;
  /// Adds to the list what copies the image over the whole target, which is as large. The image is
  /// loaded where its version is another one than before.
  virtual void add(const Image& image, ImDrawList& list) = 0;
};

/// `ground`: everything of the picture but its text.
void draw(const Picture& picture, const Image& ground, const FontSet& fonts, Backdrop& backdrop,
          ImDrawList& list);

}  // namespace shardlens::viewer
