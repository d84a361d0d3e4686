// Answers NVRTC's calls. LibTorch compiles some operators by it (erfinv, which draws truncated
// normals, i0, gcd...) when they are first used: every program compiles, to an empty one.
#include <cuda.h>

#include <cstdlib>

#include "runtime/null_device/handle.h"

using shardlens::runtime::kLibrarySuccess;

namespace {

/// Turns off LibTorch's cache of compiled kernels in the user's home, where a real GPU would look
/// for them. No other thread runs yet: the library is preloaded.
[[gnu::constructor]] void leave_no_kernels() { ::setenv("USE_PYTORCH_KERNEL_CACHE", "0", 1); }

}  // namespace

extern "C" {

int nvrtcVersion(int* major, int* minor) {
  *major = CUDA_VERSION / 1000;
  *minor = CUDA_VERSION % 1000 / 10;
  return kLibrarySuccess;
}

}  // extern "C"
