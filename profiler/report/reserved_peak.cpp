#include "profiler/report/reserved_peak.h"

namespace shardlens::profiler {

namespace {

bool is_of_segment(const Event& event, EventKind kind) {
  return event.space == Space::segment && event.kind == kind;
}
bool is_of_tensor(const Event& event, EventKind kind) {
  return event.space == Space::device && event.kind == kind;
}

}  // namespace

void ReservedPeak::before(const Event& event, const BlockTracker& tracker, PeakSet& tensors) {
  const bool goes_on = is_of_segment(event, EventKind::alloc) ||
                       is_of_tensor(event, EventKind::alloc) ||
                       (event.kind == EventKind::hold && event.value > 0);
  if (is_open_ && !goes_on) settle(tracker, tensors);
  if (is_of_segment(event, EventKind::free)) keep_segments(tracker);
}

void ReservedPeak::after(const Event& event, bool is_new_peak, const Moment& moment,
                         const BlockTracker& tracker, PeakSet& tensors) {
  if (event.kind == EventKind::hold) held_ = event.address;
  if (is_new_peak) {
    exists_ = is_open_ = true;
    has_segments_ = false;
    at_ = moment;
    request_ = {};
    private_pool_ = pool_of_action(event.action);
  }
  // A program's first request takes one segment.
  const bool is_whole_segment = is_of_segment(event, EventKind::alloc) && event.label == 0;
  if (!has_begun_ && is_whole_segment) begins_late_ = ++listed_segments_ > 1;
  if (!is_of_tensor(event, EventKind::alloc)) return;
  if (is_listed(event)) {
    begins_late_ = true;
    return;
  }
  has_begun_ = true;
  if (!is_open_) return;
  at_ = moment;
  request_ = event;
  settle(tracker, tensors);
}

void ReservedPeak::finish(const BlockTracker& tracker, PeakSet& tensors) {
  if (is_open_) settle(tracker, tensors);
  keep_segments(tracker);
}

ReservedRequest ReservedPeak::needs() const {
  return {.bytes = request_.value, .stream = request_.stream, .private_pool = private_pool_};
}

/// True for an allocation in the list of what existed before the recording.
bool ReservedPeak::is_listed(const Event& event) const {
  return !has_begun_ && held_ == event.address;
}

void ReservedPeak::settle(const BlockTracker& tracker, PeakSet& tensors) {
  is_open_ = false;
  has_begun_ = true;
  if (request_.value == 0) private_pool_ = kNoPrivatePool;
  pending_ = tracker.pending_blocks();
  tensors.mark();
}

void ReservedPeak::keep_segments(const BlockTracker& tracker) {
  if (!exists_ || has_segments_) return;
  segments_ = tracker.segments();
  has_segments_ = true;
}

}  // namespace shardlens::profiler
