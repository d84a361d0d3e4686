// Gives OpenGL without a display, for screenshots and tests.
#pragma once

#include <memory>

namespace shardlens::viewer {

/// A current OpenGL 3.3 context that draws into memory of a given size, until it is destroyed.
class Offscreen {
 public:
  /// Makes the context current. Throws std::runtime_error if this machine has no EGL that can do
  /// it.
  Offscreen(int width, int height);
  ~Offscreen();
  Offscreen(const Offscreen&) = delete;
  Offscreen& operator=(const Offscreen&) = delete;

 private:
  struct Context;
  std::unique_ptr<Context> context_;
};

}  // namespace shardlens::viewer
