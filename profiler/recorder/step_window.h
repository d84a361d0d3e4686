// Lets through only the events of some steps of training. A recording that begins late begins with
// the state of that moment: the segments, the blocks in them, the live allocations with their
// labels and latest categories, and the last value of every counter except the bytes in use. So a
// sum over its events gives the same for these steps as the whole recording would.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>

#include "base/step_range.h"
#include "profiler/file/live_set.h"
#include "profiler/recording/profile.h"
#include "profiler/report/block_tracker.h"

namespace shardlens::profiler {

/// Passes on the events of a StepRange. Any thread may call. A step's events begin with its `step`
/// event and end with the next, or, after the last step, with a change of phase. Running out of
/// memory before the first step begins the recording, too: it would hold nothing else.
class StepWindow {
 public:
  /// Called under the window's lock, by one thread at a time.
  using EventWriter = std::function<void(const Event& event)>;

  /// `mapped_label` is the label of a mapped segment's events (see Space).
  StepWindow(StepRange range, uint32_t mapped_label, EventWriter write);

  void take(const Event& event);

 private:
  enum class State { before, within, last_step, after };

  void take_before(const Event& event);
  void begin(int64_t time_ns, bool in_step);

  const StepRange range_;
  const uint32_t mapped_label_;
  const EventWriter write_;
  std::mutex mutex_;
  State state_ = State::before;
  LiveSet live_;
  BlockTracker blocks_;
  std::array<std::optional<Event>, kCounters> counters_;
  int64_t steps_before_ = 0;
};

}  // namespace shardlens::profiler
