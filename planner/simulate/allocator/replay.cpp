#include "planner/simulate/allocator/replay.h"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <utility>
#include <variant>

#include "base/check.h"

namespace shardlens::planner {

using profiler::Event;
using profiler::EventKind;

namespace {

AllocatorHistory history_of(const std::vector<Event>& events) {
  AllocatorHistory history;
  uint32_t blocks = 0;
  std::unordered_map<uint64_t, uint32_t> live;  // blocks by address
  for (size_t i = 0; i < events.size(); ++i) {
    const Event& event = events[i];
    if (event.space != profiler::Space::device) continue;
    AllocatorRequest request{.event = static_cast<uint32_t>(i)};
    if (event.kind == EventKind::alloc) {
      check(event.value > 0, "a timeline has an allocation of nothing");
      live[event.address] = request.block = blocks++;
      request.bytes = event.value;
      request.stream = event.stream;
    } else if (event.kind == EventKind::free) {
      request.block = live.at(event.address);
      request.kind = AllocatorRequestKind::free;
    } else {
      continue;
    }
    history.requests.push_back(request);
  }
  return history;
}

/// Returns names for any number of streams, since private pools have streams of their own here.
std::vector<StreamName> names_of(size_t streams) {
  constexpr size_t kOfPyTorch = 33;
  std::vector<StreamName> names = default_and_pool_streams(std::min(streams, kOfPyTorch));
  for (size_t i = names.size(); i < streams; ++i) {
    names.push_back({.handle = i, .id = static_cast<int64_t>(i)});
  }
  return names;
}

uint32_t held_blocks(const std::vector<SegmentLayout>& segments) {
  uint32_t held = 0;
  for (const SegmentLayout& segment : segments) {
    held += static_cast<uint32_t>(std::ranges::count_if(segment.blocks, &BlockLayout::is_held));
  }
  return held;
}

}  // namespace

Replay::Replay(const std::vector<Event>& events) : Replay(history_of(events)) {}

Replay::Replay(AllocatorHistory history)
    : history_(std::move(history)), blocks_(held_blocks(history_.start)) {
  std::vector<bool> is_held(blocks_, true);
  for (const SegmentLayout& segment : history_.start) {
    streams_ = std::max<size_t>(streams_, segment.stream + size_t{1});
  }
  for (const AllocatorRequest& request : history_.requests) {
    streams_ = std::max<size_t>(streams_, request.stream + size_t{1});
    const bool allocates = request.kind == AllocatorRequestKind::allocate;
    if (!allocates && request.kind != AllocatorRequestKind::free) continue;
    if (allocates ? request.block != is_held.size()
                  : request.block >= is_held.size() || !is_held[request.block]) {
      throw std::invalid_argument("a request of block " + std::to_string(request.block) +
                                  ": blocks are counted as they come, and freed once");
    }
    if (allocates) is_held.push_back(true);
    if (!allocates) is_held[request.block] = false;
  }
  blocks_ = static_cast<uint32_t>(is_held.size());
}

/// Returns false if the request found no memory.
bool Replay::send(AllocatorModel& allocator, const AllocatorRequest& request,
                  std::vector<BlockId>& blocks) const {
  switch (request.kind) {
    case AllocatorRequestKind::allocate: {
      const AllocationResult given = allocator.allocate(request.bytes, request.stream);
      const auto* allocation = std::get_if<Allocation>(&given);
      if (allocation != nullptr) blocks[request.block] = allocation->block;
      return allocation != nullptr;
    }
    case AllocatorRequestKind::free:
      allocator.free(blocks[request.block]);
      return true;
    case AllocatorRequestKind::empty_cache:
      allocator.empty_cache();
      return true;
    case AllocatorRequestKind::keep_cache:
      allocator.keep_cache(request.stream, true);
      return true;
    case AllocatorRequestKind::give_up_cache:
      allocator.keep_cache(request.stream, false);
      return true;
  }
  unreachable("kind of request out of range");
}

ReplayResult Replay::run(const AllocatorSettings& settings,
                         const SegmentAddresses& addresses) const {
  AllocatorModel allocator(settings, names_of(streams_));
  allocator.give_addresses(addresses);
  std::vector<BlockId> blocks;
  if (!history_.start.empty()) {
    std::vector<SegmentLayout> start = history_.start;
    for (size_t i = 0; addresses && i < start.size(); ++i) {
      start[i].address = addresses(static_cast<SegmentIndex>(i));
    }
    blocks = allocator.lay_out(start);
  }
  blocks.resize(blocks_);
  ReplayResult result;
  for (const AllocatorRequest& request : history_.requests) {
    if (send(allocator, request, blocks)) continue;
    result.failed_event = request.event;
    break;
  }
  allocator.check_totals();
  result.retries = allocator.counters().alloc_retries;
  result.peak_allocated_bytes = allocator.counters().all.allocated_bytes.peak;
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
    const ReplayResult result = run(tried);
    if (result.failed_event) {
      low = middle;
    } else {
      // Without what was never reserved, the same requests are served and refused.
      high = settings.limits_itself() ? middle : pages(result.peak_reserved_bytes);
    }
  }
  return high * kPageBytes;
}

}  // namespace shardlens::planner
