// The ranges of the peaks that one list of requests can lead to. Which free block is taken depends
// on the addresses that the driver gives to segments, so the same program reserves more or less on
// another day. It also counts more or less as allocated: where less than 1 MiB of a large block is
// left over, the request gets the whole block. What was requested does not change.
#pragma once

#include <cstdint>

#include "planner/simulate/allocator/replay.h"
#include "planner/simulate/allocator/settings.h"

namespace shardlens::planner {

/// A peak over several orders of addresses.
struct PeakBand {
  int64_t falling_bytes = 0;  // as on the null device: each new segment below all earlier ones
  int64_t least_bytes = 0;
  int64_t most_bytes = 0;

  bool operator==(const PeakBand&) const = default;
};

struct PeakBands {
  PeakBand allocated;
  PeakBand reserved;
  int orders = 0;
  int failed_orders = 0;   // in which a request found no memory; their peaks end there
  int retried_orders = 0;  // of the others, in which the cache was given back to make room

  bool operator==(const PeakBands&) const = default;
};

/// Measured on seven recordings (docs/evidence.md): 40 orders found up to 0.26 % of reserved more
/// than 20 did, and 80 at most 0.08 % more than 40. A replay of 98,000 events takes 3 ms.
constexpr int kDefaultOrders = 40;

/// Replays the requests with `orders` orders of addresses: falling, rising, then random ones drawn
/// from `seed`. The same arguments give the same bands; with more orders they only grow, and rare
/// orders may lie outside. Throws std::invalid_argument unless there is an order.
PeakBands peaks_over_orders(const Replay& replay, const AllocatorSettings& settings,
                            int orders = kDefaultOrders, uint64_t seed = 1);

}  // namespace shardlens::planner
