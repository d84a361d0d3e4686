// Answers cuBLAS's calls: handles and their modes, and the status that the host gets of batched
// factorisations. Products are reported to the observer of work (work_feed.h), and do nothing;
// LibTorch provides the workspace. They go to PyTorch's current stream, which LibTorch has given to
// the handle.
#include <cstdint>

#include "profiler/null_device/driver/work_feed.h"
#include "profiler/null_device/handle.h"
#include "profiler/null_device/libraries/blas_numbers.h"

using shardlens::profiler::kLibrarySuccess;
using shardlens::profiler::NumberType;
using shardlens::profiler::Product;
using shardlens::profiler::tell_library_call;
using shardlens::profiler::tell_work;
using shardlens::profiler::type_of_compute;
using shardlens::profiler::type_of_data;
using shardlens::profiler::WorkKind;
using shardlens::profiler::WorkRequest;

namespace {

constexpr int kTensorOpMath = 1, kTf32Math = 3;  // cublasMath_t, without its flags
constexpr int kModeBits = 15;

struct BlasHandle {
  int math_mode = 0;  // CUBLAS_DEFAULT_MATH
};

/// Returns how a product of fp32 is computed.
NumberType compute_of_fp32(void* handle) {
  const int mode = static_cast<BlasHandle*>(handle)->math_mode & kModeBits;
  return mode == kTf32Math || mode == kTensorOpMath ? NumberType::tf32 : NumberType::fp32;
}

/// Returns how a product is computed that is asked for as a cublasComputeType_t.
NumberType compute_of(void* handle, int compute, int type) {
  const NumberType named = type_of_compute(compute);
  const bool is_fp32 = named == NumberType::fp32 && type_of_data(type) == NumberType::fp32;
  return is_fp32 ? compute_of_fp32(handle) : named;
}

/// Returns a product of these types, without sizes.
Product of_types(int a, int b, int c, NumberType compute) {
  return {.a = type_of_data(a), .b = type_of_data(b), .c = type_of_data(c), .compute = compute};
}

/// Returns a product all of whose numbers have one type, without sizes.
Product of_type(NumberType type, NumberType compute) {
  return {.a = type, .b = type, .c = type, .compute = compute};
}
Product of_type(NumberType type) { return of_type(type, type); }

/// Reports a product that has its types already.
int product(const char* name, int transposes_a, int transposes_b, int m, int n, int k,
            Product product, int batch = 1) {
  tell_work([&] {
    product.m = m;
    product.n = n;
    product.k = k;
    product.batch = batch;
    product.transposes_a = transposes_a != 0;
    product.transposes_b = transposes_b != 0;
    return WorkRequest{.work = {.kind = WorkKind::product, .product = product},
                       .name = name,
                       .is_in_current_stream = true};
  });
  return kLibrarySuccess;
}

/// Reports a product of a matrix and a vector.
int vector_product(const char* name, int transposes, int rows, int columns, NumberType type) {
  const bool is_plain = transposes == 0;
  return product(name, transposes, 0, is_plain ? rows : columns, 1, is_plain ? columns : rows,
                 of_type(type));
}

/// Reports a product of two vectors.
int dot_product(const char* name, int count, Product types) {
  return product(name, 1, 0, 1, 1, count, types);
}

}  // namespace

extern "C" {

int cublasCreate_v2(void** handle) {
  *handle = new BlasHandle;
  return kLibrarySuccess;
}

int cublasDestroy_v2(void* handle) {
  delete static_cast<BlasHandle*>(handle);
  return kLibrarySuccess;
}

int cublasSetMathMode(void* handle, int mode) {
  static_cast<BlasHandle*>(handle)->math_mode = mode;
  return kLibrarySuccess;
}

int cublasGetMathMode(void* handle, int* mode) {
  *mode = static_cast<BlasHandle*>(handle)->math_mode;
  return kLibrarySuccess;
}

int cublasGetPointerMode_v2(void*, int* mode) {
  *mode = 0;  // CUBLAS_POINTER_MODE_HOST
  return kLibrarySuccess;
}

// ---- products -----------------------------------------------------------------------------------

int cublasGemmEx(void* handle, int transposes_a, int transposes_b, int m, int n, int k, const void*,
                 const void*, int a_type, int, const void*, int b_type, int, const void*, void*,
                 int c_type, int, int compute, int) {
  return product("cublasGemmEx", transposes_a, transposes_b, m, n, k,
                 of_types(a_type, b_type, c_type, compute_of(handle, compute, a_type)));
}

int cublasSgemmEx(void* handle, int transposes_a, int transposes_b, int m, int n, int k,
                  const void*, const void*, int a_type, int, const void*, int b_type, int,
                  const void*, void*, int c_type, int) {
  const bool is_fp32 = type_of_data(a_type) == NumberType::fp32;
  return product(
      "cublasSgemmEx", transposes_a, transposes_b, m, n, k,
      of_types(a_type, b_type, c_type, is_fp32 ? compute_of_fp32(handle) : NumberType::fp32));
}

int cublasGemmStridedBatchedEx(void* handle, int transposes_a, int transposes_b, int m, int n,
                               int k, const void*, const void*, int a_type, int, long long,
                               const void*, int b_type, int, long long, const void*, void*,
                               int c_type, int, long long, int batch, int compute, int) {
  return product("cublasGemmStridedBatchedEx", transposes_a, transposes_b, m, n, k,
                 of_types(a_type, b_type, c_type, compute_of(handle, compute, a_type)), batch);
}

int cublasGemmBatchedEx(void* handle, int transposes_a, int transposes_b, int m, int n, int k,
                        const void*, const void*, int a_type, int, const void*, int b_type, int,
                        const void*, void*, int c_type, int, int batch, int compute, int) {
  return product("cublasGemmBatchedEx", transposes_a, transposes_b, m, n, k,
                 of_types(a_type, b_type, c_type, compute_of(handle, compute, a_type)), batch);
}

int cublasSgemm_v2(void* handle, int transposes_a, int transposes_b, int m, int n, int k,
                   const void*, const void*, int, const void*, int, const void*, void*, int) {
  return product("cublasSgemm", transposes_a, transposes_b, m, n, k,
                 of_type(NumberType::fp32, compute_of_fp32(handle)));
}

int cublasSgemmStridedBatched(void* handle, int transposes_a, int transposes_b, int m, int n, int k,
                              const void*, const void*, int, long long, const void*, int, long long,
                              const void*, void*, int, long long, int batch) {
  return product("cublasSgemmStridedBatched", transposes_a, transposes_b, m, n, k,
                 of_type(NumberType::fp32, compute_of_fp32(handle)), batch);
}

int cublasDgemm_v2(void*, int transposes_a, int transposes_b, int m, int n, int k, const void*,
                   const void*, int, const void*, int, const void*, void*, int) {
  return product("cublasDgemm", transposes_a, transposes_b, m, n, k, of_type(NumberType::fp64));
}

int cublasDgemmStridedBatched(void*, int transposes_a, int transposes_b, int m, int n, int k,
                              const void*, const void*, int, long long, const void*, int, long long,
                              const void*, void*, int, long long, int batch) {
  return product("cublasDgemmStridedBatched", transposes_a, transposes_b, m, n, k,
                 of_type(NumberType::fp64), batch);
}

int cublasHgemm_v2(void*, int transposes_a, int transposes_b, int m, int n, int k, const void*,
                   const void*, int, const void*, int, const void*, void*, int) {
  return product("cublasHgemm", transposes_a, transposes_b, m, n, k, of_type(NumberType::fp16));
}

int cublasHgemmStridedBatched(void*, int transposes_a, int transposes_b, int m, int n, int k,
                              const void*, const void*, int, long long, const void*, int, long long,
                              const void*, void*, int, long long, int batch) {
  return product("cublasHgemmStridedBatched", transposes_a, transposes_b, m, n, k,
                 of_type(NumberType::fp16), batch);
}

int cublasCgemm_v2(void*, int transposes_a, int transposes_b, int m, int n, int k, const void*,
                   const void*, int, const void*, int, const void*, void*, int) {
  return product("cublasCgemm", transposes_a, transposes_b, m, n, k,
                 of_type(NumberType::complex64));
}

int cublasCgemmStridedBatched(void*, int transposes_a, int transposes_b, int m, int n, int k,
                              const void*, const void*, int, long long, const void*, int, long long,
                              const void*, void*, int, long long, int batch) {
  return product("cublasCgemmStridedBatched", transposes_a, transposes_b, m, n, k,
                 of_type(NumberType::complex64), batch);
}

int cublasZgemm_v2(void*, int transposes_a, int transposes_b, int m, int n, int k, const void*,
                   const void*, int, const void*, int, const void*, void*, int) {
  return product("cublasZgemm", transposes_a, transposes_b, m, n, k,
                 of_type(NumberType::complex128));
}

int cublasZgemmStridedBatched(void*, int transposes_a, int transposes_b, int m, int n, int k,
                              const void*, const void*, int, long long, const void*, int, long long,
                              const void*, void*, int, long long, int batch) {
  return product("cublasZgemmStridedBatched", transposes_a, transposes_b, m, n, k,
                 of_type(NumberType::complex128), batch);
}

// A product of a matrix and a vector, and of two vectors.

int cublasSgemv_v2(void*, int transposes, int rows, int columns, const void*, const void*, int,
                   const void*, int, const void*, void*, int) {
  return vector_product("cublasSgemv", transposes, rows, columns, NumberType::fp32);
}

int cublasDgemv_v2(void*, int transposes, int rows, int columns, const void*, const void*, int,
                   const void*, int, const void*, void*, int) {
  return vector_product("cublasDgemv", transposes, rows, columns, NumberType::fp64);
}

int cublasCgemv_v2(void*, int transposes, int rows, int columns, const void*, const void*, int,
                   const void*, int, const void*, void*, int) {
  return vector_product("cublasCgemv", transposes, rows, columns, NumberType::complex64);
}

int cublasZgemv_v2(void*, int transposes, int rows, int columns, const void*, const void*, int,
                   const void*, int, const void*, void*, int) {
  return vector_product("cublasZgemv", transposes, rows, columns, NumberType::complex128);
}

int cublasSdot_v2(void*, int count, const void*, int, const void*, int, void*) {
  return dot_product("cublasSdot", count, of_type(NumberType::fp32));
}

int cublasDdot_v2(void*, int count, const void*, int, const void*, int, void*) {
  return dot_product("cublasDdot", count, of_type(NumberType::fp64));
}

int cublasCdotu_v2(void*, int count, const void*, int, const void*, int, void*) {
  return dot_product("cublasCdotu", count, of_type(NumberType::complex64));
}

int cublasCdotc_v2(void*, int count, const void*, int, const void*, int, void*) {
  return dot_product("cublasCdotc", count, of_type(NumberType::complex64));
}

int cublasZdotu_v2(void*, int count, const void*, int, const void*, int, void*) {
  return dot_product("cublasZdotu", count, of_type(NumberType::complex128));
}

int cublasZdotc_v2(void*, int count, const void*, int, const void*, int, void*) {
  return dot_product("cublasZdotc", count, of_type(NumberType::complex128));
}

int cublasDotEx(void*, int count, const void*, int type, int, const void*, int, int, void*, int,
                int) {
  return dot_product("cublasDotEx", count, of_type(type_of_data(type), NumberType::fp32));
}

// ---- factorisations -----------------------------------------------------------------------------

// No argument is ever wrong. The calls for float, double and both complex types take the same
// arguments, except for the types of pointers.

int cublasSgeqrfBatched(void*, int, int, const void*, int, const void*, int* info, int) {
  tell_library_call("cublas<t>geqrfBatched");
  *info = 0;
  return kLibrarySuccess;
}
[[gnu::alias("cublasSgeqrfBatched")]] decltype(cublasSgeqrfBatched) cublasDgeqrfBatched,
    cublasCgeqrfBatched, cublasZgeqrfBatched;

int cublasSgetrsBatched(void*, int, int, int, const void*, int, const void*, const void*, int,
                        int* info, int) {
  tell_library_call("cublas<t>getrsBatched");
  *info = 0;
  return kLibrarySuccess;
}
[[gnu::alias("cublasSgetrsBatched")]] decltype(cublasSgetrsBatched) cublasDgetrsBatched,
    cublasCgetrsBatched, cublasZgetrsBatched;

int cublasSgelsBatched(void*, int, int, int, int, const void*, int, const void*, int, int* info,
                       void*, int) {
  tell_library_call("cublas<t>gelsBatched");
  *info = 0;
  return kLibrarySuccess;
}
[[gnu::alias("cublasSgelsBatched")]] decltype(cublasSgelsBatched) cublasDgelsBatched,
    cublasCgelsBatched, cublasZgelsBatched;

}  // extern "C"
