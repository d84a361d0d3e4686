#include "viewer/app/gl_functions.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <stdexcept>
#include <string>

namespace shardlens::viewer {

namespace {

[[noreturn]] void fail_to_load() {
  const char* const why = ::dlerror();
  throw std::runtime_error(
      fmt::format("no OpenGL for pictures: {}; install Mesa's EGL (libegl1, libgl1-mesa-dri) and "
                  "libgl1, or use --report, which needs no OpenGL",
                  why != nullptr ? why : "no reason given"));
}

/// A library whose function names share a prefix; it stays loaded as long as the process lives.
class Library {
 public:
  Library(const char* name, const char* prefix)
      : library_(::dlopen(name, RTLD_NOW | RTLD_GLOBAL)), prefix_(prefix) {
    if (library_ == nullptr) fail_to_load();
  }

  template <class Function>
  void find(Function& function, const char* name) const {
    void* const found = ::dlsym(library_, (prefix_ + name).c_str());
    if (found == nullptr) fail_to_load();
    function = reinterpret_cast<Function>(found);
  }

 private:
  void* library_;
  std::string prefix_;
};

GlFunctions load_gl() {
  const Library library("libGL.so.1", "gl");
  GlFunctions gl{};
  library.find(gl.BindFramebuffer, "BindFramebuffer");
  library.find(gl.BindRenderbuffer, "BindRenderbuffer");
  library.find(gl.BindTexture, "BindTexture");
  library.find(gl.BlitFramebuffer, "BlitFramebuffer");
  library.find(gl.CheckFramebufferStatus, "CheckFramebufferStatus");
  library.find(gl.DeleteFramebuffers, "DeleteFramebuffers");
  library.find(gl.DeleteRenderbuffers, "DeleteRenderbuffers");
  library.find(gl.DeleteTextures, "DeleteTextures");
  library.find(gl.Disable, "Disable");
  library.find(gl.Enable, "Enable");
  library.find(gl.FramebufferRenderbuffer, "FramebufferRenderbuffer");
  library.find(gl.FramebufferTexture2D, "FramebufferTexture2D");
  library.find(gl.GenFramebuffers, "GenFramebuffers");
  library.find(gl.GenRenderbuffers, "GenRenderbuffers");
  library.find(gl.GenTextures, "GenTextures");
  library.find(gl.GetIntegerv, "GetIntegerv");
  library.find(gl.PixelStorei, "PixelStorei");
  library.find(gl.ReadPixels, "ReadPixels");
  library.find(gl.RenderbufferStorage, "RenderbufferStorage");
  library.find(gl.TexImage2D, "TexImage2D");
  library.find(gl.TexParameteri, "TexParameteri");
  library.find(gl.TexSubImage2D, "TexSubImage2D");
  return gl;
}

EglFunctions load_egl() {
  const Library library("libEGL.so.1", "egl");
  EglFunctions egl{};
  library.find(egl.BindAPI, "BindAPI");
  library.find(egl.ChooseConfig, "ChooseConfig");
  library.find(egl.CreateContext, "CreateContext");
  library.find(egl.DestroyContext, "DestroyContext");
  library.find(egl.GetDisplay, "GetDisplay");
  library.find(egl.GetError, "GetError");
  library.find(egl.GetProcAddress, "GetProcAddress");
  library.find(egl.Initialize, "Initialize");
  library.find(egl.MakeCurrent, "MakeCurrent");
  library.find(egl.Terminate, "Terminate");
  return egl;
}

}  // namespace

const GlFunctions& gl() {
  static const GlFunctions functions = load_gl();
  return functions;
}

const EglFunctions& egl() {
  static const EglFunctions functions = load_egl();
  return functions;
}

}  // namespace shardlens::viewer
