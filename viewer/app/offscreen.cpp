#define GL_GLEXT_PROTOTYPES
#include "viewer/app/offscreen.h"

#include <EGL/egl.h>
#include <EGL/eglext.h>
#include <GL/gl.h>
#include <GL/glext.h>
#include <fmt/format.h>

#include <array>
#include <stdexcept>
#include <string_view>

namespace shardlens::viewer {

namespace {

[[noreturn]] void fail(std::string_view what) {
  throw std::runtime_error(
      fmt::format("no OpenGL for pictures: {} (EGL error {:#x}); install Mesa's EGL "
                  "(libegl1, libgl1-mesa-dri), or use --report, which needs none",
                  what, eglGetError()));
}

/// Mesa's platform without any display where it is there, else whatever EGL takes for default.
EGLDisplay open_display() {
  const auto get = reinterpret_cast<PFNEGLGETPLATFORMDISPLAYEXTPROC>(
      eglGetProcAddress("eglGetPlatformDisplayEXT"));
  if (get != nullptr) {
    EGLDisplay display = get(EGL_PLATFORM_SURFACELESS_MESA, EGL_DEFAULT_DISPLAY, nullptr);
    if (display != EGL_NO_DISPLAY && eglInitialize(display, nullptr, nullptr)) return display;
  }
  EGLDisplay display = eglGetDisplay(EGL_DEFAULT_DISPLAY);
  if (display == EGL_NO_DISPLAY || !eglInitialize(display, nullptr, nullptr)) {
    fail("EGL has no display");
  }
  return display;
}

}  // namespace

struct Offscreen::Context {
  EGLDisplay display = EGL_NO_DISPLAY;
  EGLContext context = EGL_NO_CONTEXT;
  GLuint buffer = 0;
  GLuint color = 0;

  Context() : display(open_display()) {}
  ~Context() {
    if (context != EGL_NO_CONTEXT) {
      glDeleteFramebuffers(1, &buffer);
      glDeleteRenderbuffers(1, &color);
      eglMakeCurrent(display, EGL_NO_SURFACE, EGL_NO_SURFACE, EGL_NO_CONTEXT);
      eglDestroyContext(display, context);
    }
    eglTerminate(display);
  }
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  void make() {
    const std::array<EGLint, 5> wanted = {EGL_SURFACE_TYPE, 0, EGL_RENDERABLE_TYPE, EGL_OPENGL_BIT,
                                          EGL_NONE};
    EGLConfig config = nullptr;
    EGLint count = 0;
    if (!eglBindAPI(EGL_OPENGL_API)) fail("EGL knows no desktop OpenGL");
    if (!eglChooseConfig(display, wanted.data(), &config, 1, &count) || count == 0) {
      config = EGL_NO_CONFIG_KHR;
    }
    const std::array<EGLint, 7> version = {EGL_CONTEXT_MAJOR_VERSION,
                                           3,
                                           EGL_CONTEXT_MINOR_VERSION,
                                           3,
                                           EGL_CONTEXT_OPENGL_PROFILE_MASK,
                                           EGL_CONTEXT_OPENGL_CORE_PROFILE_BIT,
                                           EGL_NONE};
    context = eglCreateContext(display, config, EGL_NO_CONTEXT, version.data());
    if (context == EGL_NO_CONTEXT) fail("no OpenGL 3.3");
    if (!eglMakeCurrent(display, EGL_NO_SURFACE, EGL_NO_SURFACE, context)) {
      fail("OpenGL needs a surface here");
    }
  }

  void make_target(int width, int height) {
    glGenFramebuffers(1, &buffer);
    glGenRenderbuffers(1, &color);
    glBindRenderbuffer(GL_RENDERBUFFER, color);
    glRenderbufferStorage(GL_RENDERBUFFER, GL_RGBA8, width, height);
    glBindFramebuffer(GL_FRAMEBUFFER, buffer);
    glFramebufferRenderbuffer(GL_FRAMEBUFFER, GL_COLOR_ATTACHMENT0, GL_RENDERBUFFER, color);
    if (glCheckFramebufferStatus(GL_FRAMEBUFFER) != GL_FRAMEBUFFER_COMPLETE) {
      fail(fmt::format("no target of {} x {} pixels", width, height));
    }
  }
};

Offscreen::Offscreen(int width, int height) : context_(std::make_unique<Context>()) {
  context_->make();
  context_->make_target(width, height);
}

Offscreen::~Offscreen() = default;

}  // namespace shardlens::viewer
