// Answers cuFFT's calls: plans, each with an upper bound of the workspace that it needs. Transforms
// do nothing. Memory that a plan keeps for itself on a GPU is not allocated.
#include <library_types.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>

#include "profiler/null_device/driver/workspace_bounds.h"
#include "profiler/null_device/handle.h"

using shardlens::profiler::kLibrarySuccess;

namespace {

constexpr shardlens::profiler::Bound kFourier = {
    "a workspace of cuFFT",
    "workspaces of cuFFT are upper bounds: NVIDIA "
    "documents 1 to 8 complex numbers for each that is "
    "transformed; 8 are assumed"};
constexpr uint64_t kWorstCase = 8;

constexpr int kInvalidPlan = 1, kInvalidType = 2;  // CUFFT_INVALID_PLAN, CUFFT_INVALID_TYPE

/// Keeps the workspace of each plan by its number.
class Plans {
 public:
  int make() {
    const std::scoped_lock lock(mutex_);
    workspaces_[++last_] = 0;
    return last_;
  }

  bool forget(int plan) {
    const std::scoped_lock lock(mutex_);
    return workspaces_.erase(plan) == 1;
  }

  /// Returns the bytes of a plan, to be read and changed by its thread; null if there is none.
  uint64_t* find(int plan) {
    const std::scoped_lock lock(mutex_);
    const auto found = workspaces_.find(plan);
    return found == workspaces_.end() ? nullptr : &found->second;
  }

 private:
  std::mutex mutex_;
  std::map<int, uint64_t> workspaces_;
  int last_ = 0;
};

/// Returns the plans, which outlive static destructors: some of these destroy PyTorch's plans.
Plans& plans() {
  static Plans& all = *new Plans;
  return all;
}

/// Returns the bytes of a complex number, or 0 for a type that cuFFT does not compute with.
uint64_t complex_bytes(cudaDataType type) {
  switch (type) {
    case CUDA_C_16F:
    case CUDA_C_16BF:
      return 4;
    case CUDA_C_32F:
      return 8;
    case CUDA_C_64F:
      return 16;
    default:
      return 0;
  }
}

}  // namespace

extern "C" {

int cufftCreate(int* plan) {
  *plan = plans().make();
  return kLibrarySuccess;
}

int cufftDestroy(int plan) { return plans().forget(plan) ? kLibrarySuccess : kInvalidPlan; }

int cufftXtMakePlanMany(int plan, int rank, const long long* sizes, const long long*, long long,
                        long long, cudaDataType, const long long*, long long, long long,
                        cudaDataType, long long batch, size_t* workspace, cudaDataType type) {
  uint64_t* const kept = plans().find(plan);
  if (kept == nullptr) return kInvalidPlan;
  uint64_t bytes = kWorstCase * complex_bytes(type) * static_cast<uint64_t>(batch);
  if (bytes == 0) return kInvalidType;
  for (int i = 0; i < rank; ++i) bytes *= static_cast<uint64_t>(sizes[i]);
  *kept = *workspace = bytes;
  return kLibrarySuccess;
}

/// PyTorch calls this before each transform, and then allocates the workspace, even for a plan that
/// it made earlier.
int cufftSetStream(int plan, void*) {
  const uint64_t* const bytes = plans().find(plan);
  if (bytes == nullptr) return kInvalidPlan;
  shardlens_null_tell_bound(&kFourier, *bytes);
  return kLibrarySuccess;
}

}  // extern "C"
