// Answers cuBLASLt's calls: descriptors, and one algorithm for every product, which needs no
// workspace beyond what LibTorch allocates before asking. Products are reported to the observer of
// work (work_feed.h). The calls that LibTorch does not make are
// cuDNN's, which ends the program if it does not find one.
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "profiler/null_device/driver/work_feed.h"
#include "profiler/null_device/handle.h"
#include "profiler/null_device/libraries/blas_numbers.h"

using shardlens::profiler::create;
using shardlens::profiler::destroy;
using shardlens::profiler::Epilogue;
using shardlens::profiler::kLibrarySuccess;
using shardlens::profiler::tell_work;
using shardlens::profiler::type_of_compute;
using shardlens::profiler::type_of_data;
using shardlens::profiler::WorkKind;
using shardlens::profiler::WorkRequest;

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

// cublasLtMatmulDescAttributes_t and cublasLtMatrixLayoutAttribute_t
constexpr int kComputeType = 0, kTransposesA = 3, kTransposesB = 4, kEpilogue = 7;
constexpr int kType = 0, kRows = 2, kColumns = 3, kBatch = 5;

/// A product and a matrix, as far as they are known. LibTorch only sets attributes one by one.
struct MatmulDescriptor {
  int compute = 0;
  int transposes_a = 0;
  int transposes_b = 0;
  int epilogue = 1;  // CUBLASLT_EPILOGUE_DEFAULT
};

struct MatrixLayout {
  int type = 0;
  uint64_t rows = 0;
  uint64_t columns = 0;
  int batch = 1;
};

template <class Value>
void take(Value& value, const void* bytes, size_t size) {
  if (size == sizeof value) std::memcpy(&value, bytes, sizeof value);
}

/// Returns the class of a cublasLtEpilogue_t, whose bits say what it does.
Epilogue epilogue_of(int number) {
  constexpr int kRelu = 2, kBias = 4, kGelu = 32;
  constexpr int kGradient = 8 | 16 | 64 | 256 | 512;  // of relu, a bias, gelu; the bits of DRELU...
  if (number == 1) return Epilogue::none;
  if ((number & kGradient) != 0) return Epilogue::gradient;
  if ((number & kGelu) != 0) return Epilogue::gelu;
  if ((number & kRelu) != 0) return Epilogue::relu;
  return (number & kBias) != 0 ? Epilogue::bias : Epilogue::other;
}

}  // namespace

extern "C" {

size_t cublasLtGetVersion() { return kVersion; }

int cublasLtMatmulDescCreate(void** descriptor, int compute, int) {
  *descriptor = new MatmulDescriptor{.compute = compute};
  return kLibrarySuccess;
}

int cublasLtMatmulDescSetAttribute(void* descriptor, int attribute, const void* value,
                                   size_t size) {
  auto& set = *static_cast<MatmulDescriptor*>(descriptor);
  if (attribute == kComputeType) take(set.compute, value, size);
  if (attribute == kTransposesA) take(set.transposes_a, value, size);
  if (attribute == kTransposesB) take(set.transposes_b, value, size);
  if (attribute == kEpilogue) take(set.epilogue, value, size);
  return kLibrarySuccess;
}

int cublasLtMatmulDescDestroy(void* descriptor) {
  delete static_cast<MatmulDescriptor*>(descriptor);
  return kLibrarySuccess;
}

int cublasLtMatrixLayoutCreate(void** layout, int type, uint64_t rows, uint64_t columns, int64_t) {
  *layout = new MatrixLayout{.type = type, .rows = rows, .columns = columns};
  return kLibrarySuccess;
}

int cublasLtMatrixLayoutSetAttribute(void* layout, int attribute, const void* value, size_t size) {
  auto& set = *static_cast<MatrixLayout*>(layout);
  if (attribute == kType) take(set.type, value, size);
  if (attribute == kRows) take(set.rows, value, size);
  if (attribute == kColumns) take(set.columns, value, size);
  if (attribute == kBatch) take(set.batch, value, size);
  return kLibrarySuccess;
}

int cublasLtMatrixLayoutDestroy(void* layout) {
  delete static_cast<MatrixLayout*>(layout);
  return kLibrarySuccess;
}

int cublasLtMatmul(void*, void* descriptor, const void*, const void*, void* a, const void*, void* b,
                   const void*, const void*, void*, void*, void* d, const void*, void*, size_t,
                   void* stream) {
  tell_work([&] {
    const auto& product = *static_cast<const MatmulDescriptor*>(descriptor);
    const auto& left = *static_cast<const MatrixLayout*>(a);
    const auto& right = *static_cast<const MatrixLayout*>(b);
    const auto& result = *static_cast<const MatrixLayout*>(d);
    const uint64_t k = product.transposes_a != 0 ? left.rows : left.columns;
    return WorkRequest{.work = {.kind = WorkKind::product,
                                .product = {.m = static_cast<int64_t>(result.rows),
                                            .n = static_cast<int64_t>(result.columns),
                                            .k = static_cast<int64_t>(k),
                                            .batch = result.batch,
                                            .a = type_of_data(left.type),
                                            .b = type_of_data(right.type),
                                            .c = type_of_data(result.type),
                                            .compute = type_of_compute(product.compute),
                                            .transposes_a = product.transposes_a != 0,
                                            .transposes_b = product.transposes_b != 0,
                                            .epilogue = epilogue_of(product.epilogue)}},
                       .name = "cublasLtMatmul",
                       .stream = stream};
  });
  return kLibrarySuccess;
}

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
int cublasLtGroupedMatrixLayoutCreate(void** layout) {
  *layout = new MatrixLayout;  // its sizes are on the device
  return kLibrarySuccess;
}
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
