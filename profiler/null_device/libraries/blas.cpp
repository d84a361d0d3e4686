// Answers cuBLAS's calls: handles and their modes, and the status that the host gets of batched
// factorisations. Products do nothing; LibTorch provides the workspace.
#include "profiler/null_device/handle.h"

using shardlens::profiler::kLibrarySuccess;

extern "C" {

int cublasCreate_v2(void** handle) { return shardlens::profiler::create(handle); }
int cublasDestroy_v2(void* handle) { return shardlens::profiler::destroy(handle); }

int cublasGetMathMode(void*, int* mode) {
  *mode = 0;  // CUBLAS_DEFAULT_MATH
  return kLibrarySuccess;
}

int cublasGetPointerMode_v2(void*, int* mode) {
  *mode = 0;  // CUBLAS_POINTER_MODE_HOST
  return kLibrarySuccess;
}

// No argument is ever wrong. The calls for float, double and both complex types take the same
// arguments, except for the types of pointers.

int cublasSgeqrfBatched(void*, int, int, const void*, int, const void*, int* info, int) {
  *info = 0;
  return kLibrarySuccess;
}
[[gnu::alias("cublasSgeqrfBatched")]] decltype(cublasSgeqrfBatched) cublasDgeqrfBatched,
    cublasCgeqrfBatched, cublasZgeqrfBatched;

int cublasSgetrsBatched(void*, int, int, int, const void*, int, const void*, const void*, int,
                        int* info, int) {
  *info = 0;
  return kLibrarySuccess;
}
[[gnu::alias("cublasSgetrsBatched")]] decltype(cublasSgetrsBatched) cublasDgetrsBatched,
    cublasCgetrsBatched, cublasZgetrsBatched;

int cublasSgelsBatched(void*, int, int, int, int, const void*, int, const void*, int, int* info,
                       void*, int) {
  *info = 0;
  return kLibrarySuccess;
}
[[gnu::alias("cublasSgelsBatched")]] decltype(cublasSgelsBatched) cublasDgelsBatched,
    cublasCgelsBatched, cublasZgelsBatched;

}  // extern "C"
