// The sums over the modelled allocator's blocks. Its counters change with each request and must
// agree: AllocatorModel::check_totals() compares them at the ends of rounds.
#pragma once

#include <cstdint>

#include "planner/simulate/allocator/counters.h"

namespace shardlens::planner {

/// Sums over the blocks of one pool, named as the counters that must equal them.
struct PoolTotals {
  int64_t allocations = 0;
  int64_t segments = 0;
  int64_t active = 0;
  int64_t inactive_split = 0;
  int64_t allocated_bytes = 0;
  int64_t reserved_bytes = 0;
  int64_t active_bytes = 0;
  int64_t inactive_split_bytes = 0;
  int64_t requested_bytes = 0;
  int64_t listed_blocks = 0;  // free blocks, mapped or not, as their lists count them
  int64_t free_blocks = 0;    // the same, as counted by the blocks
};

struct AllocatorTotals {
  PoolTotals small;
  PoolTotals large;
  int64_t oversize_allocations = 0;
  int64_t oversize_segments = 0;
  int64_t device_bytes = 0;  // of segments, in whole pages of the device
};

/// Throws std::logic_error that names the first counter that differs from its sum.
void check_agree(const AllocatorCounters& counters, const AllocatorTotals& totals);

}  // namespace shardlens::planner
