// Provides OpenGL without a display, for screenshots and tests.
#pragma once

#include <memory>

namespace shardlens::viewer {

/// A current OpenGL 3.3 context that draws into memory of a given size, until it is destroyed.
class OffscreenContext {
 public:
  /// Makes the context current. Throws std::runtime_error if this machine's EGL cannot.
  OffscreenContext(int width, int height);
  ~OffscreenContext();
  OffscreenContext(const OffscreenContext&) = delete;
  OffscreenContext& operator=(const OffscreenContext&) = delete;

 private:
  struct Context;
  std::unique_ptr<Context> context_;
};

}  // namespace shardlens::viewer
