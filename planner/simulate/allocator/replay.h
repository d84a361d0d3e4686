// Sends requests once more through a fresh model of the allocator, to learn how they fare on a
// device with less memory, with other settings, or with segments at other addresses. A replay of a
// simulated rank takes a tenth of the time of the simulation.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "planner/simulate/allocator/model.h"
#include "profiler/recording/profile.h"

namespace shardlens::planner {

/// `keep_cache` and `give_up_cache` begin and end the use of a private pool, whose requests have a
/// stream of their own: [Note: private pools].
enum class AllocatorRequestKind : uint8_t {
  allocate,
  free,
  empty_cache,
  keep_cache,
  give_up_cache
};

struct AllocatorRequest {
  int64_t bytes = 0;   // to allocate
  uint32_t block = 0;  // counts the blocks held at the start, then allocations
  uint32_t event = 0;  // where the request came from, for ReplayResult
  StreamIndex stream = 0;
  AllocatorRequestKind kind = AllocatorRequestKind::allocate;
};

/// The requests of a program, and what its allocator held before the first of them.
struct AllocatorHistory {
  std::vector<SegmentLayout> start{};
  std::vector<AllocatorRequest> requests{};
};

struct ReplayResult {
  int64_t peak_allocated_bytes = 0;
  int64_t peak_reserved_bytes = 0;
  int64_t retries = 0;
  /// The index of the event that found no memory; nothing: all requests were served.
  std::optional<size_t> failed_event;
};

class Replay {
 public:
  /// Keeps the requests that `events` make in space `device`.
  explicit Replay(const std::vector<profiler::Event>& events);
  /// Throws std::invalid_argument unless each request's block is the next one or, to be freed, one
  /// that is held.
  explicit Replay(AllocatorHistory history);

  /// Replaces the addresses of the start, too, if there are others.
  ReplayResult run(const AllocatorSettings& settings, const SegmentAddresses& addresses = {}) const;

  /// Returns the least capacity with which no request fails, in whole pages of 2 MiB; with a page
  /// less the run does not fit. It is found by halving between `allocated_bytes` and
  /// `reserved_bytes`, the peaks.
  int64_t least_capacity_bytes(const AllocatorSettings& settings, int64_t allocated_bytes,
                               int64_t reserved_bytes) const;

 private:
  bool send(AllocatorModel& allocator, const AllocatorRequest& request,
            std::vector<BlockId>& blocks) const;

  AllocatorHistory history_;
  uint32_t blocks_ = 0;
  size_t streams_ = 1;
};

}  // namespace shardlens::planner
