// NVRTC, by which LibTorch compiles some operators (erfinv, which truncated normals are drawn by,
// i0, gcd...) when they are first used: every program compiles, to nothing.
#include <cuda.h>

#include <cstdlib>

#include "runtime/null_device/handle.h"

using shardlens::runtime::kLibrarySuccess;

namespace {

/// LibTorch keeps what was compiled in the user's cache, where a real GPU would look for it. No
/// other thread runs yet: the library is preloaded.
[[gnu::constructor]] void leave_no_kernels() { ::setenv("USE_PYTORCH_KERNEL_CACHE", "0", 1); }

}  // namespace

extern "C" {

int nvrtcVersion(int* major, int* minor) {
  *major = CUDA_VERSION / 1000;
  *minor = CUDA_VERSION % 1000 / 10;
  return kLibrarySuccess;
}

}  // extern "C"
