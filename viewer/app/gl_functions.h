// OpenGL's and EGL's functions, loaded when a picture is drawn: a machine without them can still
// write the viewer's reports.
#pragma once

#define GL_GLEXT_PROTOTYPES
#include <EGL/egl.h>
#include <GL/gl.h>
#include <GL/glext.h>

namespace shardlens::viewer {

/// Named as OpenGL names them, without its "gl".
struct GlFunctions {
  decltype(&::glBindFramebuffer) BindFramebuffer;
  decltype(&::glBindRenderbuffer) BindRenderbuffer;
  decltype(&::glBindTexture) BindTexture;
  decltype(&::glBlitFramebuffer) BlitFramebuffer;
  decltype(&::glCheckFramebufferStatus) CheckFramebufferStatus;
  decltype(&::glDeleteFramebuffers) DeleteFramebuffers;
  decltype(&::glDeleteRenderbuffers) DeleteRenderbuffers;
  decltype(&::glDeleteTextures) DeleteTextures;
  decltype(&::glDisable) Disable;
  decltype(&::glEnable) Enable;
  decltype(&::glFramebufferRenderbuffer) FramebufferRenderbuffer;
  decltype(&::glFramebufferTexture2D) FramebufferTexture2D;
  decltype(&::glGenFramebuffers) GenFramebuffers;
  decltype(&::glGenRenderbuffers) GenRenderbuffers;
  decltype(&::glGenTextures) GenTextures;
  decltype(&::glGetIntegerv) GetIntegerv;
  decltype(&::glPixelStorei) PixelStorei;
  decltype(&::glReadPixels) ReadPixels;
  decltype(&::glRenderbufferStorage) RenderbufferStorage;
  decltype(&::glTexImage2D) TexImage2D;
  decltype(&::glTexParameteri) TexParameteri;
  decltype(&::glTexSubImage2D) TexSubImage2D;
};

/// Named as EGL names them, without its "egl".
struct EglFunctions {
  decltype(&::eglBindAPI) BindAPI;
  decltype(&::eglChooseConfig) ChooseConfig;
  decltype(&::eglCreateContext) CreateContext;
  decltype(&::eglDestroyContext) DestroyContext;
  decltype(&::eglGetDisplay) GetDisplay;
  decltype(&::eglGetError) GetError;
  decltype(&::eglGetProcAddress) GetProcAddress;
  decltype(&::eglInitialize) Initialize;
  decltype(&::eglMakeCurrent) MakeCurrent;
  decltype(&::eglTerminate) Terminate;
};

/// Loaded at the first call. Throws std::runtime_error if this machine has none.
const GlFunctions& gl();
const EglFunctions& egl();

}  // namespace shardlens::viewer
