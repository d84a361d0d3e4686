// Answers cuDNN's calls: versions that LibTorch accepts, and handles. Its graphs are not supported:
// attention by cuDNN and convolutions end with an error rather than with a workspace that was made
// up.
#include <cstddef>

#include "runtime/null_device/handle.h"

namespace {

constexpr size_t kVersion = 91900;
constexpr size_t kCudartVersion = 13000;
constexpr int kNotSupported = 3000;  // CUDNN_STATUS_NOT_SUPPORTED

}  // namespace

extern "C" {

size_t cudnnGetVersion() { return kVersion; }
size_t cudnnGetCudartVersion() { return kCudartVersion; }
int cudnnCreate(void** handle) { return shardlens::runtime::create(handle); }

int cudnnBackendCreateDescriptor(int, void** descriptor) {
  *descriptor = nullptr;
  return kNotSupported;
}

}  // extern "C"
