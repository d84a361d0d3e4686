#include "profiler/exchange/tensorboard/step_memory.h"

#include <algorithm>
#include <utility>

#include "profiler/exchange/timeline.h"
#include "profiler/report/block_tracker.h"

namespace shardlens::profiler {

namespace {

class StepMemoryBuilder {
 public:
  void take(const Event& event, const TimelinePoint& now) {
    tracker_.take(event);
    has_segments_ = has_segments_ || event.space == Space::segment;
    if (event.kind == EventKind::phase || event.kind == EventKind::step) {
      close();
      if (event.kind == EventKind::step && now.place.phase == Phase::training) {
        begin(event, now);
      }
      return;
    }
    if (!step_) return;
    if (now.total_bytes > step_->bytes) set(*step_, now, event.time_ns);
    reserved_bytes_ = std::max(reserved_bytes_, tracker_.totals().reserved);
  }

  std::vector<StepMemory> finish() {
    close();
    return std::move(steps_);
  }

 private:
  static void set(StepMemory& step, const TimelinePoint& now, int64_t time_ns) {
    step.time_ns = time_ns;
    step.bytes = now.total_bytes;
    step.categories = now.bytes;
  }

  void begin(const Event& event, const TimelinePoint& now) {
    step_ = StepMemory{.step = event.value, .reserved_bytes = {}};
    set(*step_, now, event.time_ns);
    reserved_bytes_ = tracker_.totals().reserved;
  }

  void close() {
    if (!step_) return;
    if (has_segments_) step_->reserved_bytes = reserved_bytes_;
    steps_.push_back(*std::exchange(step_, std::nullopt));
  }

  BlockTracker tracker_;
  bool has_segments_ = false;
  int64_t reserved_bytes_ = 0;  // at most, in the step
  std::optional<StepMemory> step_;
  std::vector<StepMemory> steps_;
};

}  // namespace

std::vector<StepMemory> step_memory(const EventSource& source) {
  StepMemoryBuilder builder;
  follow_timeline(source,
                  [&](const Event& event, const TimelinePoint& now) { builder.take(event, now); });
  return builder.finish();
}

}  // namespace shardlens::profiler
