// Answers cuBLAS's calls: handles and their modes. Its products do nothing; LibTorch provides the
// workspace.
#include "runtime/null_device/handle.h"

using shardlens::runtime::kLibrarySuccess;

extern "C" {

int cublasCreate_v2(void** handle) { return shardlens::runtime::create(handle); }
int cublasDestroy_v2(void* handle) { return shardlens::runtime::destroy(handle); }

int cublasGetMathMode(void*, int* mode) {
  *mode = 0;  // CUBLAS_DEFAULT_MATH
  return kLibrarySuccess;
}

int cublasGetPointerMode_v2(void*, int* mode) {
  *mode = 0;  // CUBLAS_POINTER_MODE_HOST
  return kLibrarySuccess;
}

}  // extern "C"
