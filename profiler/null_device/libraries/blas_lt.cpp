// Answers cuBLASLt's calls: descriptors, and one algorithm for every product, which needs no
// workspace beyond what LibTorch allocates before asking. The calls that LibTorch does not make are
// cuDNN's, which ends the program if it does not find one.
#include <cstddef>
#include <cstdint>

#include "profiler/null_device/handle.h"

using shardlens::profiler::create;
using shardlens::profiler::destroy;
using shardlens::profiler::kLibrarySuccess;

namespace {

/// Mirrors cublasLtMatmulHeuristicResult_t.
struct HeuristicResult {
  uint64_t algorithm[8];
  size_t workspace_bytes;
  int state;
  float waves;
  int reserved[4];
};
static_assert(sizeof(HeuristicResult) == 96);

constexpr size_t kVersion = 130100;
constexpr int kInvalidValue = 7;  // CUBLAS_STATUS_INVALID_VALUE

}  // namespace

extern "C" {

size_t cublasLtGetVersion() { return kVersion; }

int cublasLtMatmulDescCreate(void** descriptor, int, int) { return create(descriptor); }
int cublasLtMatmulDescDestroy(void* descriptor) { return destroy(descriptor); }
int cublasLtMatrixLayoutCreate(void** layout, int, uint64_t, uint64_t, int64_t) {
  return create(layout);
}
int cublasLtMatrixLayoutDestroy(void* layout) { return destroy(layout); }
int cublasLtMatmulPreferenceCreate(void** preference) { return create(preference); }
int cublasLtMatmulPreferenceDestroy(void* preference) { return destroy(preference); }

int cublasLtMatmulAlgoGetHeuristic(void*, void*, void*, void*, void*, void*, void*, int requested,
                                   HeuristicResult* results, int* returned) {
  *returned = requested > 0 ? 1 : 0;
  if (requested > 0) results[0] = {};
  return kLibrarySuccess;
}

int cublasLtMatrixTransformDescCreate(void** descriptor, int) { return create(descriptor); }
int cublasLtMatrixTransformDescDestroy(void* descriptor) { return destroy(descriptor); }
int cublasLtGroupedMatrixLayoutCreate(void** layout) { return create(layout); }
int cublasLtCreate(void** handle) { return create(handle); }
int cublasLtDestroy(void* handle) { return destroy(handle); }

/// Splits the version: the properties are MAJOR_VERSION, MINOR_VERSION and PATCH_LEVEL.
int cublasLtGetProperty(int property, int* value) {
  constexpr size_t kParts[] = {kVersion / 10000, kVersion / 100 % 100, kVersion % 100};
  if (property < 0 || property > 2) return kInvalidValue;
  *value = static_cast<int>(kParts[property]);
  return kLibrarySuccess;
}

}  // extern "C"
