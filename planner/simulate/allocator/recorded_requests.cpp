#include "planner/simulate/allocator/recorded_requests.h"

#include <iterator>
#include <utility>
#include <vector>

namespace shardlens::planner {

using profiler::Event;
using profiler::EventKind;
using profiler::Space;

void RecordedRequests::take(const Event& event) {
  if (ran_out_) return;
  if (event.space == Space::segment) return take_segment(event);
  if (event.space == Space::device) take_block(event);
}

void RecordedRequests::take_segment(const Event& event) {
  const bool takes = event.kind == EventKind::alloc;
  const bool gives_back = event.kind == EventKind::free;
  if (!takes && !gives_back) return;
  // The label says that pages were mapped into an expandable segment.
  has_expandable_segments_ |= takes && event.label != 0;
  if (takes) {
    note_retry();
    live_segments_[event.address] = {.end = event.address + static_cast<uint64_t>(event.value),
                                     .pool = profiler::pool_of_action(event.action)};
    return segments_.push_back(event.address);
  }
  if (!empties_last()) requests_.push_back({.kind = AllocatorRequestKind::empty_cache});
  give_up(pool_at(event.address));
  live_segments_.erase(event.address);
}

/// Returns the private pool of the segment at an address.
int32_t RecordedRequests::pool_at(uint64_t address) const {
  const auto after = live_segments_.upper_bound(address);
  if (after == live_segments_.begin()) return profiler::kNoPrivatePool;
  const Segment& segment = std::prev(after)->second;
  return address < segment.end ? segment.pool : profiler::kNoPrivatePool;
}

/// Returns the stream that the replay has for a stream and a pool.
StreamIndex RecordedRequests::lane_of(int32_t pool, uint16_t stream) {
  const auto next = static_cast<StreamIndex>(lanes_.size());
  const auto [found, is_new] = lanes_.try_emplace({pool, stream}, Lane{.stream = next});
  Lane& lane = found->second;
  if (pool != profiler::kNoPrivatePool && !lane.is_kept) {
    lane.is_kept = true;
    requests_.push_back({.stream = lane.stream, .kind = AllocatorRequestKind::keep_cache});
  }
  return lane.stream;
}

/// Notes that nothing used a private pool when the cache was emptied, since it gave memory back.
void RecordedRequests::give_up(int32_t pool) {
  if (pool == profiler::kNoPrivatePool) return;
  for (auto& [key, lane] : lanes_) {
    if (key.first != pool || !lane.is_kept) continue;
    lane.is_kept = false;
    const AllocatorRequest request = {.stream = lane.stream,
                                      .kind = AllocatorRequestKind::give_up_cache};
    requests_.insert(requests_.end() - 1, request);
  }
}

void RecordedRequests::take_block(const Event& event) {
  switch (event.kind) {
    case EventKind::alloc:
    case EventKind::out_of_memory: {
      if (event.value <= 0) return;
      ran_out_ = event.kind == EventKind::out_of_memory;
      if (ran_out_) note_retry();
      if (!ran_out_) blocks_[event.address] = made_blocks_;
      const int32_t pool = ran_out_ ? profiler::kNoPrivatePool : pool_at(event.address);
      const StreamIndex stream = lane_of(pool, event.stream);
      requests_.push_back({.bytes = event.value, .block = made_blocks_++, .stream = stream});
      return;
    }
    case EventKind::free: {
      const auto found = blocks_.extract(event.address);
      if (found.empty()) return;
      free(found.mapped());
      last_freed_ = event.address;
      return;
    }
    case EventKind::hold:  // with bytes it is a block that existed when the recording began
      return event.value == 0 ? hold_last_freed() : void();
    case EventKind::release: {
      const auto found = held_.extract(event.address);
      if (!found.empty()) free(found.mapped());
      return;
    }
    default:
      return;
  }
}

/// Notes that the last request may not be one, but the allocator's way to make room.
void RecordedRequests::note_retry() {
  if (empties_last()) maybe_retries_.push_back(requests_.size() - 1);
}

bool RecordedRequests::empties_last() const {
  return !requests_.empty() && requests_.back().kind == AllocatorRequestKind::empty_cache;
}

/// Takes back the last free: [Note: held blocks].
void RecordedRequests::hold_last_freed() {
  const bool was_free = !requests_.empty() && requests_.back().kind == AllocatorRequestKind::free;
  if (!was_free) return;
  held_[last_freed_] = requests_.back().block;
  requests_.pop_back();
}

void RecordedRequests::free(uint32_t block) {
  requests_.push_back({.block = block, .kind = AllocatorRequestKind::free});
}

AllocatorHistory RecordedRequests::history(bool has_retries) && {
  if (!has_retries) return {.requests = std::move(requests_)};
  std::vector<AllocatorRequest> kept;
  auto skipped = maybe_retries_.begin();
  for (size_t i = 0; i < requests_.size(); ++i) {
    const bool is_retry = skipped != maybe_retries_.end() && *skipped == i;
    if (is_retry) ++skipped;
    if (!is_retry) kept.push_back(requests_[i]);
  }
  return {.requests = std::move(kept)};
}

SegmentAddresses RecordedRequests::addresses() const {
  return [segments = segments_](SegmentIndex segment) {
    // A replay that takes more segments than the program did is not as recorded anyway.
    constexpr uint64_t kElsewhere = uint64_t{1} << 62;
    return segment < segments.size() ? segments[segment] : kElsewhere + segment;
  };
}

}  // namespace shardlens::planner
