#include "profiler/recorder/step_window.h"

#include <utility>
#include <vector>

#include "profiler/recording/events.h"

namespace shardlens::profiler {

StepWindow::StepWindow(StepRange range, uint32_t mapped_label, EventWriter write)
    : range_(range), mapped_label_(mapped_label), write_(std::move(write)) {}

void StepWindow::take(const Event& event) {
  const std::lock_guard lock(mutex_);
  const bool is_step = event.kind == EventKind::step;
  const bool ends_last = is_step || event.kind == EventKind::phase;
  if (state_ == State::before) return take_before(event);
  if (state_ == State::last_step && ends_last) state_ = State::after;
  if (state_ == State::after) return;
  if (is_step && event.value + 1 == range_.last) state_ = State::last_step;
  write_(event);
}

void StepWindow::take_before(const Event& event) {
  const bool is_first_step = event.kind == EventKind::step && event.value + 1 >= range_.first;
  if (is_first_step || event.kind == EventKind::out_of_memory) {
    begin(event.time_ns, !is_first_step);
    state_ = is_first_step && event.value + 1 >= range_.last ? State::last_step : State::within;
    return write_(event);
  }
  if (!is_usable(event)) return;
  live_.apply(event);
  blocks_.take(event);
  if (event.kind == EventKind::counter) counters_[event.address] = event;
  if (event.kind == EventKind::step) ++steps_before_;
}

/// Writes the state at which the recording begins, all at the time of the first event. Blocks come
/// before the allocations in them, so that no moment in between counts as a peak with other blocks.
void StepWindow::begin(int64_t time_ns, bool in_step) {
  const auto write = [&](Event event) {
    event.time_ns = time_ns;
    write_(event);
  };
  for (const auto& counter : counters_) {
    // The bytes in use belong to the segments of their moment, and the next sample comes soon.
    const auto used = static_cast<uint64_t>(Counter::device_used);
    if (counter && counter->address != used) write(*counter);
  }
  write({.address = static_cast<uint64_t>(Counter::steps_before),
         .value = steps_before_,
         .kind = EventKind::counter});
  for (const Event& event : blocks_.snapshot(mapped_label_)) write(event);
  const std::vector<Event> live = live_.snapshot();
  for (const Event& event : live) {
    if (event.kind == EventKind::alloc && event.space != Space::segment) write(event);
  }
  for (const Event& event : live) {
    if (event.kind == EventKind::phase || (event.kind == EventKind::step && in_step)) write(event);
  }
  live_ = {};
  blocks_ = {};
}

}  // namespace shardlens::profiler
