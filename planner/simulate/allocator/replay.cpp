#include "planner/simulate/allocator/replay.h"

#include <algorithm>
#include <unordered_map>
#include <variant>

#include "base/check.h"

namespace shardlens::planner {

using profiler::Event;
using profiler::EventKind;

Replay::Replay(const std::vector<Event>& events) {
  std::unordered_map<uint64_t, uint32_t> live;  // blocks by address
  for (size_t i = 0; i < events.size(); ++i) {
    const Event& event = events[i];
    if (event.space != profiler::Space::device) continue;
    if (event.kind == EventKind::alloc) {
      check(event.value > 0, "a timeline has an allocation of nothing");
      live[event.address] = blocks_;
      requests_.push_back({event.value, blocks_++, static_cast<uint32_t>(i), event.stream});
      streams_ = std::max<size_t>(streams_, event.stream + size_t{1});
    } else if (event.kind == EventKind::free) {
      requests_.push_back({0, live.at(event.address), static_cast<uint32_t>(i), 0});
    }
  }
}

ReplayResult Replay::run(const AllocatorSettings& settings) const {
  AllocatorModel allocator(settings, default_and_pool_streams(streams_));
  std::vector<BlockId> blocks(blocks_);
  ReplayResult result;
  for (const Request& request : requests_) {
    if (request.bytes == 0) {
      allocator.free(blocks[request.block]);
      continue;
    }
    const AllocationResult given = allocator.allocate(request.bytes, request.stream);
    if (const auto* allocation = std::get_if<Allocation>(&given)) {
      blocks[request.block] = allocation->block;
    } else {
      result.failed_event = request.event;
      break;
    }
  }
  allocator.check_totals();
  result.retries = allocator.counters().alloc_retries;
  result.peak_reserved_bytes = allocator.counters().all.reserved_bytes.peak;
  return result;
}

int64_t Replay::least_capacity_bytes(const AllocatorSettings& settings, int64_t allocated_bytes,
                                     int64_t reserved_bytes) const {
  constexpr int64_t kPageBytes = int64_t{2} << 20;
  const auto pages = [](int64_t bytes) { return (bytes + kPageBytes - 1) / kPageBytes; };
  AllocatorSettings tried = settings;
  int64_t low = pages(allocated_bytes) - 1, high = pages(reserved_bytes);
  while (high - low > 1) {
    const int64_t middle = low + (high - low) / 2;
    tried.capacity_bytes = middle * kPageBytes;
    (run(tried).failed_event ? low : high) = middle;
  }
  return high * kPageBytes;
}

}  // namespace shardlens::planner
