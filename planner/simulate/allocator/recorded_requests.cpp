#include "planner/simulate/allocator/recorded_requests.h"

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
  // The label says that pages were mapped into an expandable segment, the action which pool it is.
  has_more_than_model_ |= takes && (event.label != 0 || event.action >= 0);
  if (takes) {
    note_retry();
    return segments_.push_back(event.address);
  }
  const bool goes_on =
      !requests_.empty() && requests_.back().kind == AllocatorRequestKind::empty_cache;
  if (!goes_on) requests_.push_back({.kind = AllocatorRequestKind::empty_cache});
}

void RecordedRequests::take_block(const Event& event) {
  switch (event.kind) {
    case EventKind::alloc:
    case EventKind::out_of_memory: {
      if (event.value <= 0) return;
      ran_out_ = event.kind == EventKind::out_of_memory;
      if (ran_out_) note_retry();
      if (!ran_out_) blocks_[event.address] = made_blocks_;
      requests_.push_back({.bytes = event.value, .block = made_blocks_++, .stream = event.stream});
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
  const bool empties =
      !requests_.empty() && requests_.back().kind == AllocatorRequestKind::empty_cache;
  if (empties) maybe_retries_.push_back(requests_.size() - 1);
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
