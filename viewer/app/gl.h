// The viewer's own few OpenGL calls, in a current context of version 3.3.
#pragma once

#include "viewer/paint/picture.h"
#include "viewer/ui/canvas.h"

namespace shardlens::viewer {

/// Copies the image to the target instead of drawing it: software OpenGL copies a whole frame in a
/// fraction of the time that its shaders would take.
class GlBackdrop : public Backdrop {
 public:
  GlBackdrop() = default;
  ~GlBackdrop() override;
  GlBackdrop(const GlBackdrop&) = delete;
  GlBackdrop& operator=(const GlBackdrop&) = delete;

  /// The image must have is_bottom_up set.
  void add(const Image& image, ImDrawList& list) override;

 private:
  void load(const Image& image);
  void copy() const;

  unsigned texture_ = 0;
  unsigned frame_ = 0;  // to read the texture from
  uint64_t version_ = 0;
  int width_ = 0;
  int height_ = 0;
};

/// Returns the pixels that were drawn, rows from the top.
Image read_target(int width, int height);

}  // namespace shardlens::viewer
