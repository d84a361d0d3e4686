#include <algorithm>
#include <bit>

#include "profiler/recording/events.h"
#include "profiler/report/report.h"

namespace shardlens::profiler {

namespace {

constexpr size_t kMostFailures = 3;
constexpr size_t kMostRunning = 1000;  // actions at a time, however many a damaged file begins

}  // namespace

void Analysis::take(const Event& event) {
  ++events_;
  has_times_ = has_times_ || event.time_ns != 0;
  if (!is_usable(event)) {
    ++unmatched_;
    return;
  }
  switch (event.kind) {
    case EventKind::alloc:
      return take_alloc(event);
    case EventKind::free:
      return take_free(event);
    case EventKind::recategorise:
      return take_recategorise(event);
    case EventKind::out_of_memory:
      return take_failure(event);
    case EventKind::phase:
      close_window();
      phase_ = static_cast<Phase>(event.value);
      in_step_ = false;
      return;
    case EventKind::step:
      close_window();
      step_ = event.value;
      in_step_ = phase_ == Phase::training;
      if (in_step_ && !round_label_) begin_mark(step_);
      return;
    case EventKind::counter:
      return take_counter(event);
    case EventKind::hold:
    case EventKind::release:
      return take_hold(event);
    case EventKind::action_begin:
      note_work(event.action);
      if (running_.size() < kMostRunning) running_.push_back(event.action);
      return;
    case EventKind::action_end:
      note_work(event.action);
      return end_action(event.action);
    case EventKind::module:
      module_ = event.label;
      return;
  }
}

/// Ends the innermost action with this number.
void Analysis::end_action(int32_t action) {
  const auto found = std::ranges::find(running_.rbegin(), running_.rend(), action);
  if (found != running_.rend()) running_.erase(std::next(found).base());
}

Moment Analysis::moment_of(const Event& event) const {
  const int32_t action = std::max(event.action, -1);  // below: a segment's private pool
  return {.time_ns = event.time_ns,
          .step = step_,
          .action = action,
          .phase = phase_,
          .running = running_.empty() ? -1 : running_.back(),
          .module = module_};
}

Level& Analysis::level_of(size_t space) {
  return space == static_cast<size_t>(Space::segment) ? reserved_ : sets_[space].level();
}

void Analysis::take_recategorise(const Event& event) {
  PeakSet& set = set_of(event.space);
  if (!set.recategorise(event.address, event.category, event.label)) ++unmatched_;
}

void Analysis::take_alloc(const Event& event) {
  ++space_events_[static_cast<size_t>(event.space)];
  ++space_allocations_[static_cast<size_t>(event.space)];
  if (event.space == Space::segment) return take_segment(event);
  const bool is_device = event.space == Space::device;
  if (is_device) reserved_peak_.before(event, tracker_, set_of(Space::device));
  given_bytes_ = is_device ? tracker_.take(event) : event.value;
  if (is_device) {
    end_watch(event);
    if (event.label == round_label_) begin_mark(growth_.marks());
  }
  PeakSet& set = set_of(event.space);
  const Moment moment = moment_of(event);
  const PeakSet::Addition added = set.alloc(event, given_bytes_, moment);
  if (event.space == Space::driver) take_library(added);
  if (!is_device) return;
  if (added.is_peak) blocks_at_peak_ = tracker_.totals();
  reserved_peak_.after(event, false, moment, tracker_, set);
  if (added.replaced) growth_.freed(*added.replaced);
  growth_.allocated(added.live, set);
}

/// Takes memory that a library got from the driver.
void Analysis::take_library(const PeakSet::Addition& added) {
  if (added.replaced) libraries_[added.replaced->label] -= added.replaced->given_bytes;
  libraries_[added.live.label] += added.live.given_bytes;
  take_own_device_bytes();
}

void Analysis::take_free(const Event& event) {
  ++space_events_[static_cast<size_t>(event.space)];
  if (event.space == Space::segment) return take_segment(event);
  if (event.space == Space::device) {
    giving_back_.reset();  // no request frees a tensor
    reserved_peak_.before(event, tracker_, set_of(Space::device));
    tracker_.take(event);
  }
  const std::optional<LiveAllocation> ended = set_of(event.space).free(event.address);
  if (!ended) ++unmatched_;
  if (ended && event.space == Space::driver) libraries_[ended->label] -= ended->given_bytes;
  if (ended && event.space == Space::device) growth_.freed(*ended);
}

void Analysis::begin_mark(int64_t number) {
  growth_.mark(set_of(Space::device));
  mark_numbers_.push_back(number);
}

void Analysis::take_segment(const Event& event) {
  PeakSet& tensors = set_of(Space::device);
  watch_cache(event);
  reserved_peak_.before(event, tracker_, tensors);
  tracker_.take(event);
  const Moment moment = moment_of(event);
  const bool is_new_peak = reserved_.set(tracker_.totals().reserved, moment);
  reserved_peak_.after(event, is_new_peak, moment, tracker_, tensors);
  if (event.kind == EventKind::alloc) take_own_device_bytes();
}

void Analysis::take_hold(const Event& event) {
  PeakSet& tensors = set_of(Space::device);
  reserved_peak_.before(event, tracker_, tensors);
  tracker_.take(event);
  reserved_peak_.after(event, false, moment_of(event), tracker_, tensors);
}

void Analysis::take_counter(const Event& event) {
  if (static_cast<Counter>(event.address) == Counter::loss) {
    const auto loss = std::bit_cast<double>(event.value);
    if (losses_.count++ == 0) losses_.first = loss;
    losses_.last = loss;
    return;
  }
  CounterReport& counter = counters_[event.address];
  counter.largest = counter.count == 0 ? event.value : std::max(counter.largest, event.value);
  counter.last = event.value;
  ++counter.count;
  if (static_cast<Counter>(event.address) == Counter::device_used) take_used(event.value);
  if (static_cast<Counter>(event.address) == Counter::pinned_asked) take_pinned_asked(event.value);
}

void Analysis::take_pinned_asked(int64_t asked_bytes) {
  const int64_t used = last_of(Counter::pinned_used).value_or(0);
  if (pinned_use_ && pinned_use_->used_bytes >= used) return;
  pinned_use_ = {.used_bytes = used, .asked_bytes = asked_bytes};
}

/// Returns the bytes of the device that this process is known to hold.
int64_t Analysis::own_device_bytes() const {
  const bool has_driver = space_events_[static_cast<size_t>(Space::driver)] > 0;
  return has_driver ? sets_[static_cast<size_t>(Space::driver)].level().bytes
                    : tracker_.totals().reserved;
}

void Analysis::take_used(int64_t bytes) {
  if (!most_used_ || bytes > most_used_->used) most_used_ = ledger_now(bytes);
  used_by_others_ = bytes - own_device_bytes();
}

/// The device's use is sampled now and then. In between, it is what others used at the last sample,
/// and what this process holds.
void Analysis::take_own_device_bytes() {
  if (!used_by_others_) return;
  const int64_t bytes = *used_by_others_ + own_device_bytes();
  if (bytes >= most_used_->used) most_used_ = ledger_now(bytes);
}

/// Returns the state of memory, without a request.
Analysis::Failure Analysis::failure_now(Space space) const {
  const PeakSet& set = sets_[static_cast<size_t>(space)];
  Failure failure{.event = {},
                  .report = {},
                  .live = set.live_allocations(),
                  .segments = tracker_.segments(),
                  .pending = tracker_.pending_blocks()};
  failure.report.largest_free_bytes = tracker_.largest_free_bytes();
  failure.report.blocks = tracker_.totals();
  failure.report.given = set.given();
  return failure;
}

void Analysis::take_failure(const Event& event) {
  // The last failure counts most, since a run may survive those before it.
  if (++failure_count_ > static_cast<int64_t>(kMostFailures)) failures_.pop_back();
  const auto total = last_of(Counter::device_total);
  const auto device_free = static_cast<int64_t>(
      std::min<uint64_t>(event.address, static_cast<uint64_t>(kMostEventBytes)));
  // Segments come in multiples of 2 MiB. Memory cached in whole segments had gone back to the
  // driver before the request failed.
  const int64_t fresh = device_free / kSegmentRoundingBytes * kSegmentRoundingBytes;
  const bool is_device = event.space == Space::device;
  if (is_device && total) take_used(*total - device_free);
  giving_back_.reset();
  Failure failure = failure_now(event.space);
  failure.event = event;
  failure.report.at = moment_of(event);
  failure.report.device_free_bytes = device_free;
  failure.report.would_fit_bytes =
      is_device ? std::max(fresh, tracker_.largest_fit_bytes(event.stream)) : device_free;
  failures_.push_back(std::move(failure));
}

/// Takes an event of a segment, before the tracker does: see the note on how a retry is seen.
void Analysis::watch_cache(const Event& event) {
  if (event.kind == EventKind::free) {
    if (giving_back_ && giving_back_->needed_bytes == 0) return;  // one of several
    giving_back_ = failure_now(Space::device);
    return;
  }
  if (!giving_back_) return;
  if (giving_back_->needed_bytes == 0) {
    const BlockTotals& before = giving_back_->report.blocks;
    const int64_t given_back = before.reserved - tracker_.totals().reserved;
    giving_back_->needed_bytes = own_device_bytes() + given_back;
    giving_back_->private_pool = pool_of_action(event.action);
  }
  giving_back_->needed_bytes += event.value;
}

/// Takes a request that got its block.
void Analysis::end_watch(const Event& request) {
  if (!giving_back_) return;
  Failure failure = *std::move(giving_back_);
  giving_back_.reset();
  if (failure.needed_bytes == 0) return;  // it did not need a segment
  if (given_back_ && given_back_->needed_bytes >= failure.needed_bytes) return;
  failure.event = request;
  failure.report.at = moment_of(request);
  given_back_ = std::move(failure);
}

void Analysis::close_window() {
  StepPeak peak{.step = step_};
  for (size_t space = 0; space < kSpaces; ++space) {
    peak.bytes[space] = level_of(space).next_window();
    auto& of_phase = phase_peaks_[space][static_cast<size_t>(phase_)];
    of_phase = std::max(of_phase.value_or(0), peak.bytes[space]);
  }
  if (in_step_) steps_.push_back(peak);
}

Analysis::LedgerSample Analysis::ledger_now(int64_t used_bytes) const {
  return {.used = used_bytes, .blocks = tracker_.totals(), .libraries = libraries_};
}

}  // namespace shardlens::profiler
