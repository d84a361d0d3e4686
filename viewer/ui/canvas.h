// Draws a picture with ImGui: one image that fills the target, and text over it.
#pragma once

#include "viewer/paint/picture.h"
#include "viewer/ui/fonts.h"

struct ImDrawList;

namespace shardlens::viewer {

/// Copies an image to memory that the graphics card can read, and from there to the target.
class Backdrop {
 public:
  virtual ~Backdrop() = default;
  /// Adds a command to the list that copies the image over the whole target, which has the same
  /// size. The image is loaded only if its version has changed.
  virtual void add(const Image& image, ImDrawList& list) = 0;
};

/// Draws the texts of the picture over `ground`, which is the image of everything else in it.
void draw(const Picture& picture, const Image& ground, const FontSet& fonts, Backdrop& backdrop,
          ImDrawList& list);

}  // namespace shardlens::viewer
