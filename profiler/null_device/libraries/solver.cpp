// Answers cuSOLVER's calls: handles, and an upper bound of the workspace of each factorisation.
// Factorisations do nothing.
//
// [Note: cuSOLVER's workspaces] NVIDIA gives no size without a GPU, and no bound in its
// documentation. The bounds assume that the algorithms are LAPACK's, in blocks, in place and in
// batches:
//
//   factorisations (Cholesky, LU, QR, LDL)   a copy of the matrix and two of its panels
//   eigenvalues, singular values             LAPACK's documented workspace of its routine with the
//                                            largest (syevd, gesdd), two copies of the matrix, a
//                                            copy of each result in full, and two panels
//
// with rows and columns rounded up to tiles, for each matrix of a batch, and one allowance a call.
// All sizes that others have measured on GPUs and published are smaller
// (tests/profiler/null_device/bounds_test.cpp has them). The calls for one type return a number of
// elements, which fits an int on a GPU, too.
#include <library_types.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "profiler/null_device/driver/workspace_bounds.h"
#include "profiler/null_device/handle.h"

using shardlens::profiler::create;
using shardlens::profiler::destroy;
using shardlens::profiler::kLibrarySuccess;

namespace {

constexpr shardlens::profiler::Bound kSolver = {
    "a workspace of cuSOLVER",
    "workspaces of cuSOLVER are upper bounds: NVIDIA gives no size without a GPU; what LAPACK's "
    "routines need and copies of their matrices are assumed"};

constexpr uint64_t kTile = 32;    // columns that a small kernel works on at once
constexpr uint64_t kPanel = 256;  // columns of a block
constexpr uint64_t kAllowance = 4096;

constexpr int kNotSupported = 9;  // CUSOLVER_STATUS_NOT_SUPPORTED

uint64_t round_to_tiles(int64_t size) {
  return (static_cast<uint64_t>(std::max<int64_t>(size, 1)) + kTile - 1) / kTile * kTile;
}

/// Returns the elements that an in-place factorisation needs.
uint64_t factor_elements(int64_t rows, int64_t columns) {
  const uint64_t m = round_to_tiles(rows), n = round_to_tiles(columns);
  return m * n + kPanel * (m + n + kPanel);
}

/// Returns the elements for the eigenvectors of a symmetric matrix: dsyevd documents
/// 1 + 6 n + 2 n^2, and 3 + 5 n integers.
uint64_t symmetric_elements(int64_t size) {
  const uint64_t n = round_to_tiles(size);
  const uint64_t lapack = 4 + 11 * n + 2 * n * n;
  return lapack + 2 * n * n + 2 * kPanel * n;
}

/// Returns the elements for singular vectors: dgesdd documents 4 k^2 + 7 k + max(m, n) and 8 k
/// integers, where k is the smaller one of m and n.
uint64_t singular_elements(int64_t rows, int64_t columns, bool in_full) {
  const uint64_t m = round_to_tiles(rows), n = round_to_tiles(columns), k = std::min(m, n);
  const uint64_t lapack = 4 * k * k + 15 * k + std::max(m, n);
  const uint64_t results = in_full ? m * m + n * n : (m + n) * k;
  return lapack + 2 * m * n + results + kPanel * (m + n);
}

/// Returns the elements for the eigenvectors of any matrix, which are complex. dgeev documents 4 n.
uint64_t general_elements(int64_t size) {
  const uint64_t n = round_to_tiles(size);
  return 4 * n + 2 * n * n + 4 * n * n + 2 * kPanel * n;
}

int tell(uint64_t elements, int* size) {
  constexpr uint64_t kMost = std::numeric_limits<int>::max();
  *size = static_cast<int>(std::min(elements + kAllowance, kMost));
  shardlens_null_tell_bound(&kSolver, static_cast<uint64_t>(*size));
  return kLibrarySuccess;
}

int tell_batch(uint64_t elements, int matrices, int* size) {
  return tell(elements * static_cast<uint64_t>(std::max(matrices, 0)), size);
}

/// Returns bytes, for the calls that take any type. Host memory that they need is not recorded, so
/// none is asked for.
int tell_bytes(uint64_t elements, cudaDataType type, size_t* on_device, size_t* on_host) {
  uint64_t element = 0;
  switch (type) {
    case CUDA_R_32F:
      element = 4;
      break;
    case CUDA_R_64F:
    case CUDA_C_32F:
      element = 8;
      break;
    case CUDA_C_64F:
      element = 16;
      break;
    default:
      return kNotSupported;
  }
  *on_device = (elements + kAllowance) * element;
  *on_host = 0;
  shardlens_null_tell_bound(&kSolver, *on_device);
  return kLibrarySuccess;
}

}  // namespace

// The calls for float, double and both complex types take the same arguments, except for the types
// of pointers.
extern "C" {

int cusolverDnCreate(void** handle) { return create(handle); }
int cusolverDnDestroy(void* handle) { return destroy(handle); }
int cusolverDnCreateParams(void** parameters) { return create(parameters); }
int cusolverDnDestroyParams(void* parameters) { return destroy(parameters); }
int cusolverDnCreateGesvdjInfo(void** parameters) { return create(parameters); }
int cusolverDnDestroyGesvdjInfo(void* parameters) { return destroy(parameters); }
int cusolverDnCreateSyevjInfo(void** parameters) { return create(parameters); }
int cusolverDnDestroySyevjInfo(void* parameters) { return destroy(parameters); }

int cusolverDnSpotrf_bufferSize(void*, int, int n, const void*, int, int* size) {
  return tell(factor_elements(n, n), size);
}
[[gnu::alias("cusolverDnSpotrf_bufferSize")]] decltype(cusolverDnSpotrf_bufferSize)
    cusolverDnDpotrf_bufferSize,
    cusolverDnCpotrf_bufferSize, cusolverDnZpotrf_bufferSize;

int cusolverDnSgetrf_bufferSize(void*, int m, int n, const void*, int, int* size) {
  return tell(factor_elements(m, n), size);
}
[[gnu::alias("cusolverDnSgetrf_bufferSize")]] decltype(cusolverDnSgetrf_bufferSize)
    cusolverDnDgetrf_bufferSize,
    cusolverDnCgetrf_bufferSize, cusolverDnZgetrf_bufferSize;

int cusolverDnSgeqrf_bufferSize(void*, int m, int n, const void*, int, int* size) {
  return tell(factor_elements(m, n), size);
}
[[gnu::alias("cusolverDnSgeqrf_bufferSize")]] decltype(cusolverDnSgeqrf_bufferSize)
    cusolverDnDgeqrf_bufferSize,
    cusolverDnCgeqrf_bufferSize, cusolverDnZgeqrf_bufferSize;

int cusolverDnSorgqr_bufferSize(void*, int m, int n, int, const void*, int, const void*,
                                int* size) {
  return tell(factor_elements(m, n), size);
}
[[gnu::alias("cusolverDnSorgqr_bufferSize")]] decltype(cusolverDnSorgqr_bufferSize)
    cusolverDnDorgqr_bufferSize,
    cusolverDnCungqr_bufferSize, cusolverDnZungqr_bufferSize;

/// Multiplies an m x n matrix by the k reflectors of another one with as many rows or columns.
int cusolverDnSormqr_bufferSize(void*, int, int, int m, int n, int k, const void*, int, const void*,
                                const void*, int, int* size) {
  return tell(factor_elements(m, n) + factor_elements(std::max(m, n), k), size);
}
[[gnu::alias("cusolverDnSormqr_bufferSize")]] decltype(cusolverDnSormqr_bufferSize)
    cusolverDnDormqr_bufferSize,
    cusolverDnCunmqr_bufferSize, cusolverDnZunmqr_bufferSize;

int cusolverDnSsytrf_bufferSize(void*, int n, const void*, int, int* size) {
  return tell(factor_elements(n, n), size);
}
[[gnu::alias("cusolverDnSsytrf_bufferSize")]] decltype(cusolverDnSsytrf_bufferSize)
    cusolverDnDsytrf_bufferSize,
    cusolverDnCsytrf_bufferSize, cusolverDnZsytrf_bufferSize;

int cusolverDnSsyevd_bufferSize(void*, int, int, int n, const void*, int, const void*, int* size) {
  return tell(symmetric_elements(n), size);
}
[[gnu::alias("cusolverDnSsyevd_bufferSize")]] decltype(cusolverDnSsyevd_bufferSize)
    cusolverDnDsyevd_bufferSize,
    cusolverDnCheevd_bufferSize, cusolverDnZheevd_bufferSize;

int cusolverDnSsyevj_bufferSize(void*, int, int, int n, const void*, int, const void*, int* size,
                                void*) {
  return tell(symmetric_elements(n), size);
}
[[gnu::alias("cusolverDnSsyevj_bufferSize")]] decltype(cusolverDnSsyevj_bufferSize)
    cusolverDnDsyevj_bufferSize,
    cusolverDnCheevj_bufferSize, cusolverDnZheevj_bufferSize;

int cusolverDnSsyevjBatched_bufferSize(void*, int, int, int n, const void*, int, const void*,
                                       int* size, void*, int matrices) {
  return tell_batch(symmetric_elements(n), matrices, size);
}
[[gnu::alias("cusolverDnSsyevjBatched_bufferSize")]] decltype(cusolverDnSsyevjBatched_bufferSize)
    cusolverDnDsyevjBatched_bufferSize,
    cusolverDnCheevjBatched_bufferSize, cusolverDnZheevjBatched_bufferSize;

int cusolverDnSgesvd_bufferSize(void*, int m, int n, int* size) {
  return tell(singular_elements(m, n, true), size);
}
[[gnu::alias("cusolverDnSgesvd_bufferSize")]] decltype(cusolverDnSgesvd_bufferSize)
    cusolverDnDgesvd_bufferSize,
    cusolverDnCgesvd_bufferSize, cusolverDnZgesvd_bufferSize;

int cusolverDnSgesvdj_bufferSize(void*, int, int economic, int m, int n, const void*, int,
                                 const void*, const void*, int, const void*, int, int* size,
                                 void*) {
  return tell(singular_elements(m, n, economic == 0), size);
}
[[gnu::alias("cusolverDnSgesvdj_bufferSize")]] decltype(cusolverDnSgesvdj_bufferSize)
    cusolverDnDgesvdj_bufferSize,
    cusolverDnCgesvdj_bufferSize, cusolverDnZgesvdj_bufferSize;

int cusolverDnSgesvdjBatched_bufferSize(void*, int, int m, int n, const void*, int, const void*,
                                        const void*, int, const void*, int, int* size, void*,
                                        int matrices) {
  return tell_batch(singular_elements(m, n, true), matrices, size);
}
[[gnu::alias("cusolverDnSgesvdjBatched_bufferSize")]] decltype(cusolverDnSgesvdjBatched_bufferSize)
    cusolverDnDgesvdjBatched_bufferSize,
    cusolverDnCgesvdjBatched_bufferSize, cusolverDnZgesvdjBatched_bufferSize;

int cusolverDnSgesvdaStridedBatched_bufferSize(void*, int, int, int m, int n, const void*, int,
                                               long long, const void*, long long, const void*, int,
                                               long long, const void*, int, long long, int* size,
                                               int matrices) {
  return tell_batch(singular_elements(m, n, false), matrices, size);
}
[[gnu::alias(
    "cusolverDnSgesvdaStridedBatched_"
    "bufferSize")]] decltype(cusolverDnSgesvdaStridedBatched_bufferSize)
    cusolverDnDgesvdaStridedBatched_bufferSize,
    cusolverDnCgesvdaStridedBatched_bufferSize, cusolverDnZgesvdaStridedBatched_bufferSize;

int cusolverDnXpotrf_bufferSize(void*, void*, int, int64_t n, cudaDataType, const void*, int64_t,
                                cudaDataType type, size_t* on_device, size_t* on_host) {
  return tell_bytes(factor_elements(n, n), type, on_device, on_host);
}

int cusolverDnXgeqrf_bufferSize(void*, void*, int64_t m, int64_t n, cudaDataType, const void*,
                                int64_t, cudaDataType, const void*, cudaDataType type,
                                size_t* on_device, size_t* on_host) {
  return tell_bytes(factor_elements(m, n), type, on_device, on_host);
}

int cusolverDnXsyevd_bufferSize(void*, void*, int, int, int64_t n, cudaDataType, const void*,
                                int64_t, cudaDataType, const void*, cudaDataType type,
                                size_t* on_device, size_t* on_host) {
  return tell_bytes(symmetric_elements(n), type, on_device, on_host);
}

int cusolverDnXsyevBatched_bufferSize(void*, void*, int, int, int64_t n, cudaDataType, const void*,
                                      int64_t, cudaDataType, const void*, cudaDataType type,
                                      size_t* on_device, size_t* on_host, int64_t matrices) {
  const auto count = static_cast<uint64_t>(std::max<int64_t>(matrices, 0));
  return tell_bytes(symmetric_elements(n) * count, type, on_device, on_host);
}

int cusolverDnXgeev_bufferSize(void*, void*, int, int, int64_t n, cudaDataType, const void*,
                               int64_t, cudaDataType, const void*, cudaDataType, const void*,
                               int64_t, cudaDataType, const void*, int64_t, cudaDataType type,
                               size_t* on_device, size_t* on_host) {
  return tell_bytes(general_elements(n), type, on_device, on_host);
}

int cusolverDnXsytrs_bufferSize(void*, int, int64_t n, int64_t columns, cudaDataType type,
                                const void*, int64_t, const int64_t*, cudaDataType, const void*,
                                int64_t, size_t* on_device, size_t* on_host) {
  return tell_bytes(factor_elements(n, n) + factor_elements(n, columns), type, on_device, on_host);
}

}  // extern "C"
