// The answers of the model of PyTorch's caching allocator to requests, and the events that it
// reports meanwhile. Callers that drive AllocatorModel read these; all sizes are bytes.
#pragma once

#include <cstdint>
#include <optional>
#include <variant>

#include "planner/simulate/allocator/hashed_streams.h"

namespace shardlens::planner {

/// Names a block until it is freed.
using BlockId = uint32_t;
/// Numbers segments in the order in which they were made. An expandable segment is a range of
/// addresses.
using SegmentIndex = uint32_t;

enum class AllocationSource : uint8_t {
  cache,           // an existing free block
  driver,          // new memory
  after_oversize,  // new memory, when cached blocks of max_split_bytes or more were given back
  after_retry,     // new memory, when the whole cache was given back: a stall on a real device
};

struct Allocation {
  BlockId block = 0;
  SegmentIndex segment = 0;
  int64_t offset_bytes = 0;  // in the segment
  int64_t block_bytes = 0;   // given, and counted as allocated
  AllocationSource source = AllocationSource::cache;
};

/// The result of a request that failed, in bytes at the time when the allocator gave up.
struct AllocationFailure {
  int64_t requested = 0;
  int64_t rounded = 0;
  int64_t asked_of_driver = 0;  // the segment that was wanted
  int64_t device_free = 0;      // after all possible memory was given back
  int64_t allocated = 0;        // held by callers
  int64_t reserved = 0;
  std::optional<int64_t> allowed;  // by a memory fraction
  int64_t collected = 0;           // given back on the way: as garbage,
  int64_t released_oversize = 0;   // as oversize blocks before a first retry,
  int64_t released_cache = 0;      // and with the whole cache before the last one
};

using AllocationResult = std::variant<Allocation, AllocationFailure>;

enum class AllocatorEventKind : uint8_t {
  alloc,
  free_requested,
  free_completed,
  segment_alloc,
  segment_free,
  segment_map,
  segment_unmap,
};

/// One event as LibTorch's trace of the allocator records it, in the same order. Running out of
/// memory is not an event here, but the result of a request (AllocationFailure).
struct AllocatorEvent {
  AllocatorEventKind kind = AllocatorEventKind::alloc;
  StreamIndex stream = 0;
  SegmentIndex segment = 0;
  int64_t offset_bytes = 0;
  int64_t bytes = 0;      // requested ones for alloc and free_*, else of the range
  bool is_split = false;  // alloc: a remainder stayed free

  bool operator==(const AllocatorEvent&) const = default;
};

}  // namespace shardlens::planner
