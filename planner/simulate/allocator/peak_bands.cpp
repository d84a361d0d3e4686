#include "planner/simulate/allocator/peak_bands.h"

#include <stdexcept>
#include <string>

namespace shardlens::planner {

using profiler::PeakBand;
using profiler::PeakBands;

namespace {

SegmentAddresses addresses_of(int index, uint64_t seed) {
  if (index == 0) return {};  // falling
  if (index == 1) return rising_addresses();
  return random_addresses(seed + static_cast<uint64_t>(index));
}

void widen(PeakBand& band, int64_t bytes, bool is_first) {
  if (is_first) band = {.falling_bytes = bytes, .least_bytes = bytes, .most_bytes = bytes};
  band.include(bytes);
}

}  // namespace

PeakBands peaks_over_orders(const Replay& replay, const AllocatorSettings& settings, int orders,
                            uint64_t seed) {
  if (orders < 1) {
    throw std::invalid_argument(std::to_string(orders) +
                                " orders of addresses: there is no range; give 1 or more");
  }
  PeakBands bands{.orders = orders};
  for (int i = 0; i < orders; ++i) {
    const ReplayResult result = replay.run(settings, addresses_of(i, seed));
    widen(bands.allocated, result.peak_allocated_bytes, i == 0);
    widen(bands.reserved, result.peak_reserved_bytes, i == 0);
    bands.failed_orders += result.failed_event ? 1 : 0;
    bands.retried_orders += !result.failed_event && result.retries > 0 ? 1 : 0;
  }
  return bands;
}

}  // namespace shardlens::planner
