// Answers cuBLASLt's calls: descriptors, and one algorithm for every product, which needs no
// workspace of its own beyond what LibTorch allocates before asking.
#include <cstddef>
#include <cstdint>

#include "runtime/null_device/handle.h"

using shardlens::runtime::create;
using shardlens::runtime::destroy;
using shardlens::runtime::kLibrarySuccess;

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

}  // extern "C"
