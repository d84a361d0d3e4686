// The counters of PyTorch's caching allocator, named as in torch.cuda.memory_stats(). Bytes of
// blocks count after rounding; only requested_bytes counts what callers asked for.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/check.h"

namespace shardlens::planner {

struct AllocatorStat {
  int64_t current = 0;
  int64_t peak = 0;
  int64_t increased = 0;  // the sum of all increases: LibTorch's `allocated`
  int64_t decreased = 0;  // LibTorch's `freed`

  void increase(int64_t amount) {
    check(amount >= 0, "a counter grows by a negative amount");
    current += amount;
    increased += amount;
    peak = std::max(peak, current);
  }
  void decrease(int64_t amount) {
    check(amount >= 0 && amount <= current, "more is taken from a counter than it holds");
    current -= amount;
    decreased += amount;
  }
  void reset_peak() { peak = current; }
  void reset_accumulated() { increased = decreased = 0; }
  bool operator==(const AllocatorStat&) const = default;
};

/// The counters of one pool of blocks, or of both pools together.
struct PoolCounters {
  AllocatorStat allocations;      // blocks that a caller holds
  AllocatorStat segments;         // without expandable ones
  AllocatorStat active;           // blocks held, or freed but kept for other streams
  AllocatorStat inactive_split;   // free blocks beside others of their segment; 0 if expandable
  AllocatorStat allocated_bytes;  // of `allocations`
  AllocatorStat reserved_bytes;   // taken from the driver
  AllocatorStat active_bytes;     // of `active`
  AllocatorStat inactive_split_bytes;
  AllocatorStat requested_bytes;  // what callers asked for, of `active`

  void for_each(void (AllocatorStat::*change)()) {
    for (AllocatorStat* counter :
         {&allocations, &segments, &active, &inactive_split, &allocated_bytes, &reserved_bytes,
          &active_bytes, &inactive_split_bytes, &requested_bytes}) {
      (counter->*change)();
    }
  }
  bool operator==(const PoolCounters&) const = default;
};

struct AllocatorCounters {
  PoolCounters all;
  PoolCounters small;  // requests of up to 1 MiB
  PoolCounters large;
  AllocatorStat oversize_allocations;  // of max_split_bytes or more
  AllocatorStat oversize_segments;
  int64_t alloc_retries = 0;  // the driver refused, so that the whole cache was given back
  int64_t out_of_memory = 0;
  int64_t synchronizations = 0;  // with all streams
  int64_t driver_allocations = 0;
  int64_t driver_frees = 0;

  void for_each(void (AllocatorStat::*change)()) {
    for (PoolCounters* counters : {&all, &small, &large}) counters->for_each(change);
    (oversize_allocations.*change)();
    (oversize_segments.*change)();
  }
  bool operator==(const AllocatorCounters&) const = default;
};

}  // namespace shardlens::planner
