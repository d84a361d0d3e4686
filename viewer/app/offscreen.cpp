#include "viewer/app/offscreen.h"

#include <EGL/egl.h>
#include <EGL/eglext.h>
#include <fmt/format.h>

#include <array>
#include <stdexcept>
#include <string_view>

#include "viewer/app/gl_functions.h"

namespace shardlens::viewer {

namespace {

[[noreturn]] void fail(std::string_view what) {
  throw std::runtime_error(
      fmt::format("no OpenGL for pictures: {} (EGL error {:#x}); install Mesa's EGL "
                  "(libegl1, libgl1-mesa-dri), or use --report, which needs no OpenGL",
                  what, egl().GetError()));
}

/// Opens Mesa's platform that needs no display if there is one, else EGL's default display.
EGLDisplay open_display() {
  gl();  // throws before anything is opened
  const auto get = reinterpret_cast<PFNEGLGETPLATFORMDISPLAYEXTPROC>(
      egl().GetProcAddress("eglGetPlatformDisplayEXT"));
  if (get != nullptr) {
    EGLDisplay display = get(EGL_PLATFORM_SURFACELESS_MESA, EGL_DEFAULT_DISPLAY, nullptr);
    if (display != EGL_NO_DISPLAY && egl().Initialize(display, nullptr, nullptr)) return display;
  }
  EGLDisplay display = egl().GetDisplay(EGL_DEFAULT_DISPLAY);
  if (display == EGL_NO_DISPLAY || !egl().Initialize(display, nullptr, nullptr)) {
    fail("EGL has no display");
  }
  return display;
}

}  // namespace

struct OffscreenContext::Context {
  EGLDisplay display = EGL_NO_DISPLAY;
  EGLContext context = EGL_NO_CONTEXT;
  GLuint buffer = 0;
  GLuint color = 0;

  Context() : display(open_display()) {}
  ~Context() {
    if (context != EGL_NO_CONTEXT) {
      gl().DeleteFramebuffers(1, &buffer);
      gl().DeleteRenderbuffers(1, &color);
      egl().MakeCurrent(display, EGL_NO_SURFACE, EGL_NO_SURFACE, EGL_NO_CONTEXT);
      egl().DestroyContext(display, context);
    }
    egl().Terminate(display);
  }
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  void make() {
    const std::array<EGLint, 5> wanted = {EGL_SURFACE_TYPE, 0, EGL_RENDERABLE_TYPE, EGL_OPENGL_BIT,
                                          EGL_NONE};
    EGLConfig config = nullptr;
    EGLint count = 0;
    if (!egl().BindAPI(EGL_OPENGL_API)) fail("EGL has no desktop OpenGL");
    if (!egl().ChooseConfig(display, wanted.data(), &config, 1, &count) || count == 0) {
      config = EGL_NO_CONFIG_KHR;
    }
    const std::array<EGLint, 7> version = {EGL_CONTEXT_MAJOR_VERSION,
                                           3,
                                           EGL_CONTEXT_MINOR_VERSION,
                                           3,
                                           EGL_CONTEXT_OPENGL_PROFILE_MASK,
                                           EGL_CONTEXT_OPENGL_CORE_PROFILE_BIT,
                                           EGL_NONE};
    context = egl().CreateContext(display, config, EGL_NO_CONTEXT, version.data());
    if (context == EGL_NO_CONTEXT) fail("no OpenGL 3.3");
    if (!egl().MakeCurrent(display, EGL_NO_SURFACE, EGL_NO_SURFACE, context)) {
      fail("OpenGL needs a surface here");
    }
  }

  void make_target(int width, int height) {
    gl().GenFramebuffers(1, &buffer);
    gl().GenRenderbuffers(1, &color);
    gl().BindRenderbuffer(GL_RENDERBUFFER, color);
    gl().RenderbufferStorage(GL_RENDERBUFFER, GL_RGBA8, width, height);
    gl().BindFramebuffer(GL_FRAMEBUFFER, buffer);
    gl().FramebufferRenderbuffer(GL_FRAMEBUFFER, GL_COLOR_ATTACHMENT0, GL_RENDERBUFFER, color);
    if (gl().CheckFramebufferStatus(GL_FRAMEBUFFER) != GL_FRAMEBUFFER_COMPLETE) {
      fail(fmt::format("no target of {} x {} pixels", width, height));
    }
  }
};

OffscreenContext::OffscreenContext(int width, int height) : context_(std::make_unique<Context>()) {
  context_->make();
  context_->make_target(width, height);
}

OffscreenContext::~OffscreenContext() = default;

}  // namespace shardlens::viewer
