// LibTorch's own caching allocator of CUDA memory, on the null device, and the planner's model,
// which get the same operations. After each one everything visible of both is compared: what they
// reported on the way, the address, the counters, the device's free memory.
#pragma once

#include <memory>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAStream.h>

#include "planner/simulate/allocator/model.h"
#include "tests/support/allocator_storm.h"

namespace shardlens::tests {

/// Counts rare events.
struct StormCoverage {
  int64_t events = 0;  // compared
  int64_t new_segments = 0;
  int64_t collections = 0;       // of garbage
  int64_t oversize_retries = 0;  // successful ones
  int64_t retries = 0;
  int64_t failures = 0;
  int64_t kept_for_streams = 0;  // frees that completed later
  int64_t unmapped_ranges = 0;
};

/// Applies AllocatorStorm's operations to both. It stops at the first difference: `difference()`.
class AllocatorPair {
 public:
  /// Called once in a process, before anything uses the device. `settings` as
  /// PYTORCH_CUDA_ALLOC_CONF.
  AllocatorPair(const std::string& settings, uint32_t streams);
  ~AllocatorPair();
  AllocatorPair(const AllocatorPair&) = delete;
  AllocatorPair& operator=(const AllocatorPair&) = delete;

  /// Returns whether it succeeded, if both agree; empty if they differ.
  std::optional<bool> apply(const StormOperation& operation);

  const std::string& difference() const { return difference_; }
  const StormCoverage& coverage() const { return coverage_; }

 private:
  struct HeldBlock {
    void* address = nullptr;
    planner::BlockId block = 0;
  };
  struct RealEvents;

  bool allocate(const StormOperation& operation);
  bool allocate_in_model(const StormOperation& operation);
  void* allocate_in_libtorch(const StormOperation& operation);
  void compare_failure(const planner::AllocationFailure& failure);
  void record_stream(const StormOperation& operation);
  bool take_outside(const StormOperation& operation);
  void give_back_outside(const StormOperation& operation);
  void change(const StormOperation& operation);

  void compare();
  void compare_events();
  void compare_counters();
  void place(const planner::AllocatorEvent& event, uint64_t address);
  void note(const planner::Allocation& given);
  template <class T>
  void expect(const char* what, const T& real, const T& modelled);

  std::unique_ptr<planner::AllocatorModel> model_;
  std::vector<planner::AllocatorEvent> modelled_;
  RealEvents* real_ = nullptr;  // LibTorch keeps its tracker forever
  std::vector<c10::cuda::CUDAStream> streams_;
  std::vector<HeldBlock> held_;         // by slot
  std::vector<void*> outside_;          // by slot
  std::vector<int64_t> outside_bytes_;  // by slot
  std::vector<uint64_t> bases_;         // of LibTorch's segments, by the model's index; 0: none
  std::set<uint64_t> known_bases_;
  std::optional<planner::AllocationFailure> failure_;
  std::string difference_;
  StormCoverage coverage_;
};

}  // namespace shardlens::tests
