// Answers NVRTC's calls. LibTorch compiles some operators with it (erfinv, which draws truncated
// normals, i0, gcd, products of whole numbers...) when they are first used: every program compiles,
// to an empty text. For NVIDIA's own cuDNN, NVIDIA's own NVRTC compiles: otherwise cuDNN would
// leave out the kernels that it cannot compile, and take others than on a GPU.
#include "profiler/null_device/libraries/nvrtc.h"

#include <cuda.h>
#include <dlfcn.h>

#include <atomic>
#include <cstdlib>
#include <string>

#include "base/fault.h"
#include "profiler/null_device/handle.h"
#include "profiler/null_device/libraries/cudnn_caller.h"

using shardlens::profiler::kLibrarySuccess;

namespace {

constexpr int kInternalError = 11;  // NVRTC_ERROR_INTERNAL_ERROR

std::atomic<void*> nvidias{nullptr};

/// Turns off LibTorch's cache of compiled kernels in the user's home, where a real GPU would look
/// for them. No other thread runs yet: the library is preloaded.
[[gnu::constructor]] void leave_no_kernels() { ::setenv("USE_PYTORCH_KERNEL_CACHE", "0", 1); }

shardlens::Problem take(const char* path) {
  void* const library = ::dlopen(path, RTLD_LAZY | RTLD_LOCAL);
  if (library == nullptr) return ::dlerror();
  nvidias = library;
  return std::nullopt;
}

/// Answers a call that returns to `caller` with NVIDIA's function of this name, if cuDNN is the
/// caller; else does nothing.
template <class... Arguments>
int answer(const void* caller, const char* name, Arguments... arguments) {
  if (!shardlens::profiler::is_in_cudnn(caller)) return kLibrarySuccess;
  void* const library = nvidias;
  void* const found = library == nullptr ? nullptr : ::dlsym(library, name);
  if (found == nullptr) return kInternalError;
  return reinterpret_cast<int (*)(Arguments...)>(found)(arguments...);
}

/// Answers a call for a size or a text. If cuDNN is not the caller, the text is empty: its only
/// byte is the terminator.
int answer_size(const void* caller, const char* name, void* program, size_t* bytes) {
  *bytes = 1;
  return answer(caller, name, program, bytes);
}

int answer_text(const void* caller, const char* name, void* program, char* text) {
  *text = '\0';
  return answer(caller, name, program, text);
}

}  // namespace

extern "C" {

const char* shardlens_null_nvrtc(const char* path) {
  static const std::string why_not = take(path).value_or("");
  return why_not.c_str();
}

int nvrtcVersion(int* major, int* minor) {
  *major = CUDA_VERSION / 1000;
  *minor = CUDA_VERSION % 1000 / 10;
  return answer(__builtin_return_address(0), __func__, major, minor);
}

int nvrtcGetNumSupportedArchs(int* count) {
  return answer(__builtin_return_address(0), __func__, count);
}

int nvrtcGetSupportedArchs(int* archs) {
  return answer(__builtin_return_address(0), __func__, archs);
}

int nvrtcCreateProgram(void** program, const char* source, const char* name, int headers,
                       const char* const* texts, const char* const* names) {
  return answer(__builtin_return_address(0), __func__, program, source, name, headers, texts,
                names);
}

int nvrtcDestroyProgram(void** program) {
  return answer(__builtin_return_address(0), __func__, program);
}

int nvrtcAddNameExpression(void* program, const char* name) {
  return answer(__builtin_return_address(0), __func__, program, name);
}

int nvrtcCompileProgram(void* program, int count, const char* const* options) {
  return answer(__builtin_return_address(0), __func__, program, count, options);
}

int nvrtcGetLoweredName(void* program, const char* name, const char** lowered) {
  return answer(__builtin_return_address(0), __func__, program, name, lowered);
}

int nvrtcGetProgramLogSize(void* program, size_t* bytes) {
  return answer_size(__builtin_return_address(0), __func__, program, bytes);
}

int nvrtcGetProgramLog(void* program, char* text) {
  return answer_text(__builtin_return_address(0), __func__, program, text);
}

int nvrtcGetPTXSize(void* program, size_t* bytes) {
  return answer_size(__builtin_return_address(0), __func__, program, bytes);
}

int nvrtcGetPTX(void* program, char* text) {
  return answer_text(__builtin_return_address(0), __func__, program, text);
}

int nvrtcGetCUBINSize(void* program, size_t* bytes) {
  return answer_size(__builtin_return_address(0), __func__, program, bytes);
}

int nvrtcGetCUBIN(void* program, char* data) {
  return answer_text(__builtin_return_address(0), __func__, program, data);
}

int nvrtcGetLTOIRSize(void* program, size_t* bytes) {
  return answer_size(__builtin_return_address(0), __func__, program, bytes);
}

int nvrtcGetLTOIR(void* program, char* data) {
  return answer_text(__builtin_return_address(0), __func__, program, data);
}

int nvrtcGetPCHCreateStatus(void* program) {
  return answer(__builtin_return_address(0), __func__, program);
}

}  // extern "C"
