#define GL_GLEXT_PROTOTYPES
#include "viewer/app/gl.h"

#include <GL/gl.h>
#include <GL/glext.h>
#include <imgui.h>

#include <algorithm>

namespace shardlens::viewer {

GlBackdrop::~GlBackdrop() {
  glDeleteFramebuffers(1, &frame_);
  glDeleteTextures(1, &texture_);
}

void GlBackdrop::load(const Image& image) {
  if (version_ == image.version) return;
  const bool is_same_size = width_ == image.width && height_ == image.height;
  version_ = image.version;
  width_ = image.width;
  height_ = image.height;
  rows_.resize(image.pixels.size());
  for (int y = 0; y < height_; ++y) {
    const auto from = image.pixels.begin() + static_cast<std::ptrdiff_t>(y) * width_;
    std::copy(from, from + width_,
              rows_.begin() + static_cast<std::ptrdiff_t>(height_ - 1 - y) * width_);
  }
  if (texture_ == 0) glGenTextures(1, &texture_);
  glBindTexture(GL_TEXTURE_2D, texture_);
  if (is_same_size) {
    glTexSubImage2D(GL_TEXTURE_2D, 0, 0, 0, width_, height_, GL_RGBA, GL_UNSIGNED_BYTE,
                    rows_.data());
    return;
  }
  glTexParameteri(GL_TEXTURE_2D, GL_TEXTURE_MIN_FILTER, GL_NEAREST);
  glTexParameteri(GL_TEXTURE_2D, GL_TEXTURE_MAG_FILTER, GL_NEAREST);
  glTexImage2D(GL_TEXTURE_2D, 0, GL_RGBA8, width_, height_, 0, GL_RGBA, GL_UNSIGNED_BYTE,
               rows_.data());
  GLint target = 0;
  glGetIntegerv(GL_READ_FRAMEBUFFER_BINDING, &target);
  if (frame_ == 0) glGenFramebuffers(1, &frame_);
  glBindFramebuffer(GL_READ_FRAMEBUFFER, frame_);
  glFramebufferTexture2D(GL_READ_FRAMEBUFFER, GL_COLOR_ATTACHMENT0, GL_TEXTURE_2D, texture_, 0);
  glBindFramebuffer(GL_READ_FRAMEBUFFER, static_cast<GLuint>(target));
}

void GlBackdrop::copy() const {
  GLint target = 0;
  glGetIntegerv(GL_READ_FRAMEBUFFER_BINDING, &target);
  glBindFramebuffer(GL_READ_FRAMEBUFFER, frame_);
  glDisable(GL_SCISSOR_TEST);
  glBlitFramebuffer(0, 0, width_, height_, 0, 0, width_, height_, GL_COLOR_BUFFER_BIT, GL_NEAREST);
  glEnable(GL_SCISSOR_TEST);
  glBindFramebuffer(GL_READ_FRAMEBUFFER, static_cast<GLuint>(target));
}

void GlBackdrop::add(const Image& image, ImDrawList& list) {
  load(image);
  const auto copy = [](const ImDrawList*, const ImDrawCmd* command) {
    static_cast<const GlBackdrop*>(command->UserCallbackData)->copy();
  };
  list.AddCallback(copy, this);
}

Image read_target(int width, int height) {
  Image image;
  image.width = width;
  image.height = height;
  image.pixels.resize(static_cast<size_t>(width) * static_cast<size_t>(height));
  glPixelStorei(GL_PACK_ALIGNMENT, 1);
  glReadPixels(0, 0, width, height, GL_RGBA, GL_UNSIGNED_BYTE, image.pixels.data());
  const auto row = [&](int y) {
    return image.pixels.begin() + static_cast<std::ptrdiff_t>(y) * width;
  };
  for (int y = 0; y < height / 2; ++y) {
    std::swap_ranges(row(y), row(y) + width, row(height - 1 - y));
  }
  return image;
}

}  // namespace shardlens::viewer
