// Sends a GPU's requests through AllocatorModel, and compares each answer with the GPU's.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <unordered_map>
#include <vector>

#include "planner/simulate/allocator/model.h"
#include "tests/evidence/gpu_history.h"

namespace shardlens::tests {

/// Counts what the GPU and the model did, and how often they did the same.
struct Comparison {
  int64_t allocations = 0;
  int64_t placed_alike = 0;  // in the same segment, at the same offset
  int64_t segments = 0;      // that the GPU took
  int64_t model_segments = 0;
  int64_t segments_alike = 0;  // taken at the same request, of the same size
  int64_t freed_segments = 0;
  int64_t model_freed_segments = 0;
  int64_t releases = 0;        // retries, calls of empty_cache and failures
  int64_t releases_alike = 0;  // that gave back the same segments in the same order
  int64_t retries = 0;
  int64_t model_retries = 0;
  int64_t failures = 0;
  int64_t failures_alike = 0;   // with the same bytes free and reserved
  int64_t reserved_unlike = 0;  // allocations after which the reserved bytes differ
  int64_t reserved_bytes = 0;   // the GPU's peak
  int64_t model_reserved_bytes = 0;
  bool ends_alike = false;  // with the same segments
};

class GpuReplay {
 public:
  /// `gives_addresses`: new segments lie where the GPU's driver put them; else below all others.
  GpuReplay(const GpuHistory& history, bool gives_addresses);

  Comparison run();

 private:
  struct Segment {
    int64_t bytes = 0;                             // mapped, of an expandable segment
    std::optional<planner::SegmentIndex> model{};  // the same one there
  };
  /// A segment that was taken, or pages that were mapped.
  struct Pages {
    uint64_t segment = 0;  // its address on the GPU
    uint64_t offset = 0;   // of the pages
    int64_t bytes = 0;
  };

  size_t apply(size_t index);
  void allocate(const GpuEvent& event);
  void fail(const GpuEvent& event);
  void free(uint64_t address);
  size_t empty_cache(size_t index);
  void take(const GpuEvent& event);
  void give_back(const GpuEvent& event);
  uint64_t range_of(uint64_t address);
  void compare_taken();
  void compare_place(const GpuEvent& event, const planner::Allocation& given);
  void compare_release();
  void finish();
  std::map<uint64_t, int64_t> last_segments();

  const GpuHistory& history_;
  planner::AllocatorModel model_;
  Comparison seen_;
  std::unordered_map<uint64_t, planner::BlockId> live_;            // by address on the GPU
  std::map<uint64_t, Segment> segments_;                           // by address on the GPU
  std::unordered_map<planner::SegmentIndex, uint64_t> addresses_;  // on the GPU, of the model's
  int64_t reserved_bytes_ = 0;                                     // on the GPU

  // The memory that was taken and given back since the last request, on the GPU and in the model.
  std::vector<Pages> taken_;
  std::vector<uint64_t> freed_;  // addresses
  std::vector<planner::AllocatorEvent> model_taken_;
  std::vector<uint64_t> model_freed_;
};

}  // namespace shardlens::tests
