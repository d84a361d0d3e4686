#include "planner/simulate/allocator/reserved_band.h"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace shardlens::planner {

namespace {

SegmentAddresses order_of(int index, uint64_t seed) {
  if (index == 0) return {};  // rising
  if (index == 1) return falling_addresses();
  return random_addresses(seed + static_cast<uint64_t>(index));
}

}  // namespace

ReservedBand reserved_over_orders(const Replay& replay, const AllocatorSettings& settings,
                                  int orders, uint64_t seed) {
  if (orders < 1) {
    throw std::invalid_argument(std::to_string(orders) +
                                " orders of addresses: there is no range; give 1 or more");
  }
  ReservedBand band;
  for (int i = 0; i < orders; ++i) {
    const ReplayResult result = replay.run(settings, order_of(i, seed));
    const int64_t bytes = result.peak_reserved_bytes;
    if (i == 0) band = {.rising_bytes = bytes, .least_bytes = bytes, .most_bytes = bytes};
    band.least_bytes = std::min(band.least_bytes, bytes);
    band.most_bytes = std::max(band.most_bytes, bytes);
    band.failed_orders += result.failed_event ? 1 : 0;
  }
  return band;
}

}  // namespace shardlens::planner
