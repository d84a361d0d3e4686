// Compares upper bounds of workspaces that only a GPU can report with sizes that other people have
// measured on GPUs, and with the bound that NVIDIA documents.
#include <library_types.h>

#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "profiler/null_device/driver/workspace_bounds.h"

// Not every machine has the headers of these libraries.
extern "C" {
int cufftCreate(int* plan);
int cufftDestroy(int plan);
int cufftXtMakePlanMany(int plan, int rank, const long long* sizes, const long long*, long long,
                        long long, cudaDataType, const long long*, long long, long long,
                        cudaDataType, long long batch, size_t* workspace, cudaDataType type);
int cufftSetStream(int plan, void*);
int cusolverDnCheevjBatched_bufferSize(void*, int, int, int n, const void*, int, const void*,
                                       int* size, void*, int matrices);
int cusolverDnSgesvd_bufferSize(void*, int m, int n, int* size);
int cusolverDnXsyevd_bufferSize(void*, void*, int, int, int64_t n, cudaDataType, const void*,
                                int64_t, cudaDataType, const void*, cudaDataType type,
                                size_t* on_device, size_t* on_host);
}

namespace {

uint64_t fourier_bound(std::vector<long long> sizes, long long batch) {
  int plan = 0;
  size_t bytes = 0;
  REQUIRE(cufftCreate(&plan) == 0);
  REQUIRE(cufftXtMakePlanMany(plan, static_cast<int>(sizes.size()), sizes.data(), nullptr, 1, 1,
                              CUDA_C_32F, nullptr, 1, 1, CUDA_C_32F, batch, &bytes,
                              CUDA_C_32F) == 0);
  REQUIRE(cufftSetStream(plan, nullptr) == 0);
  REQUIRE(cufftDestroy(plan) == 0);
  return bytes;
}

}  // namespace

TEST_CASE("a workspace of cuFFT is what NVIDIA documents for the worst case") {
  CHECK(fourier_bound({1000}, 7) == 8 * 7 * 1000 * 8);
  CHECK(std::string(shardlens_null_next_bound()) == "a workspace of cuFFT");
  CHECK(shardlens_null_next_bound() == nullptr);
}

TEST_CASE("no measured workspace of cuFFT is larger") {
  // github.com/arrayfire/arrayfire/issues/1443: 80 KB for each 100 columns of 100.
  for (unsigned i = 1; i < 16; ++i) CHECK(fourier_bound({100, 100 * i}, 1) >= 80'000U * i);
  // github.com/JuliaGPU/CUDA.jl/issues/894: 64 MiB.
  CHECK(fourier_bound({512, 512, 32}, 1) >= 64U << 20);
}

TEST_CASE("no measured workspace of cuSOLVER is larger") {
  // github.com/cupy/cupy/issues/7261: cheevjBatched for 4 x 4, in elements by the batch.
  const std::vector<std::pair<int, int>> kMeasured = {{1, 2077},    {2, 3126},      {4, 5224},
                                                      {8, 9420},    {16, 17'812},   {32, 34'596},
                                                      {64, 68'164}, {128, 135'300}, {256, 269'572}};
  for (const auto& [matrices, elements] : kMeasured) {
    int bound = 0;
    cusolverDnCheevjBatched_bufferSize(nullptr, 1, 0, 4, nullptr, 4, nullptr, &bound, nullptr,
                                       matrices);
    CHECK(bound >= elements);
  }
  // github.com/cupy/cupy/issues/2351: sgesvd for m x 1 takes about m^2, so that 50'000 overflow.
  int bound = 0;
  cusolverDnSgesvd_bufferSize(nullptr, 40'000, 1, &bound);
  CHECK(bound >= 40'000 * 40'000);
}

TEST_CASE("a size given in bytes is not limited by an int") {
  size_t on_device = 0, on_host = 0;
  REQUIRE(cusolverDnXsyevd_bufferSize(nullptr, nullptr, 1, 0, 40'000, CUDA_R_64F, nullptr, 40'000,
                                      CUDA_R_64F, nullptr, CUDA_R_64F, &on_device, &on_host) == 0);
  CHECK(on_device > size_t{2} * 40'000 * 40'000 * 8);  // LAPACK's, which has 2 n^2
}

TEST_CASE("doubts are reported once for each library") {
  fourier_bound({8}, 1);
  fourier_bound({16}, 1);
  const std::string doubts = shardlens_null_bounds();
  CHECK(doubts.starts_with("workspaces of cuFFT are upper bounds: "));
  CHECK(doubts.find('\n') == doubts.size() - 1);
}
