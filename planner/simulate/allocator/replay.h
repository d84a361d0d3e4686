// Sends the requests of a simulated rank once more through a fresh model of the allocator, to learn
// how they fare on a device with less memory or with other settings. A replay takes a tenth of the
// time of a simulation.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "planner/simulate/allocator/model.h"
#include "profiler/recording/profile.h"

namespace shardlens::planner {

struct ReplayResult {
  int64_t peak_reserved_bytes = 0;
  int64_t retries = 0;
  /// The index of the event that found no memory; nothing: all requests were served.
  std::optional<size_t> failed_event;
};

class Replay {
 public:
  /// Keeps the requests that `events` make in space `device`.
  explicit Replay(const std::vector<profiler::Event>& events);

  ReplayResult run(const AllocatorSettings& settings) const;

  /// Returns the least capacity with which no request fails, in whole pages of 2 MiB; with a page
  /// less the run does not fit. It is found by halving between `allocated_bytes` and
  /// `reserved_bytes`, the peaks.
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
