// The requests of a simulated rank, sent once more through a fresh model of the allocator: what a
// device with less memory, or other settings, makes of them. A tenth of the time of a simulation.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "planner/allocator_model.h"
#include "profiler/profile.h"

namespace shardlens::planner {

struct ReplayResult {
  int64_t peak_reserved_bytes = 0;
  int64_t retries = 0;
  /// The event that found no memory.
  std::optional<size_t> failed_event;
};

class Replay {
 public:
  /// Of space `device`.
  explicit Replay(const std::vector<profiler::Event>& events);

  ReplayResult run(const AllocatorSettings& settings) const;

  /// The least capacity with which nothing fails, in pages of 2 MiB, found by halving between what
  /// is allocated and what is reserved at most. With a page less it does not fit.
  int64_t least_capacity_bytes(const AllocatorSettings& settings, int64_t allocated_bytes,
                               int64_t reserved_bytes) const;

 private:
  struct Request {
    int64_t bytes = 0;   // 0: a free
    uint32_t block = 0;  // counts allocations
    uint32_t event = 0;
    StreamIndex stream = 0;
  };
  std::vector<Request> requests_;
  uint32_t blocks_ = 0;
  size_t streams_ = 1;
};

}  // namespace shardlens::planner
