#include "viewer/app/gl.h"

#include <imgui.h>

#include <algorithm>

#include "viewer/app/gl_functions.h"

namespace shardlens::viewer {

GlBackdrop::~GlBackdrop() {
  gl().DeleteFramebuffers(1, &frame_);
  gl().DeleteTextures(1, &texture_);
}

void GlBackdrop::load(const Image& image) {
  if (version_ == image.version) return;
  const bool is_same_size = width_ == image.width && height_ == image.height;
  version_ = image.version;
  width_ = image.width;
  height_ = image.height;
  if (texture_ == 0) gl().GenTextures(1, &texture_);
  gl().BindTexture(GL_TEXTURE_2D, texture_);
  if (is_same_size) {
    gl().TexSubImage2D(GL_TEXTURE_2D, 0, 0, 0, width_, height_, GL_RGBA, GL_UNSIGNED_BYTE,
                       image.pixels.data());
    return;
  }
  gl().TexParameteri(GL_TEXTURE_2D, GL_TEXTURE_MIN_FILTER, GL_NEAREST);
  gl().TexParameteri(GL_TEXTURE_2D, GL_TEXTURE_MAG_FILTER, GL_NEAREST);
  gl().TexImage2D(GL_TEXTURE_2D, 0, GL_RGBA8, width_, height_, 0, GL_RGBA, GL_UNSIGNED_BYTE,
                  image.pixels.data());
  GLint target = 0;
  gl().GetIntegerv(GL_READ_FRAMEBUFFER_BINDING, &target);
  if (frame_ == 0) gl().GenFramebuffers(1, &frame_);
  gl().BindFramebuffer(GL_READ_FRAMEBUFFER, frame_);
  gl().FramebufferTexture2D(GL_READ_FRAMEBUFFER, GL_COLOR_ATTACHMENT0, GL_TEXTURE_2D, texture_, 0);
  gl().BindFramebuffer(GL_READ_FRAMEBUFFER, static_cast<GLuint>(target));
}

void GlBackdrop::copy() const {
  GLint target = 0;
  gl().GetIntegerv(GL_READ_FRAMEBUFFER_BINDING, &target);
  gl().BindFramebuffer(GL_READ_FRAMEBUFFER, frame_);
  gl().Disable(GL_SCISSOR_TEST);
  gl().BlitFramebuffer(0, 0, width_, height_, 0, 0, width_, height_, GL_COLOR_BUFFER_BIT,
                       GL_NEAREST);
  gl().Enable(GL_SCISSOR_TEST);
  gl().BindFramebuffer(GL_READ_FRAMEBUFFER, static_cast<GLuint>(target));
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
  gl().PixelStorei(GL_PACK_ALIGNMENT, 1);
  gl().ReadPixels(0, 0, width, height, GL_RGBA, GL_UNSIGNED_BYTE, image.pixels.data());
  const auto row = [&](int y) {
    return image.pixels.begin() + static_cast<std::ptrdiff_t>(y) * width;
  };
  for (int y = 0; y < height / 2; ++y) {
    std::swap_ranges(row(y), row(y) + width, row(height - 1 - y));
  }
  return image;
}

}  // namespace shardlens::viewer
