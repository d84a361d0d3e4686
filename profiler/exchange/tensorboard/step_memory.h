// Finds the memory of each training step of a recording: at its peak, by category.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "profiler/exchange/event_source.h"
#include "profiler/recording/profile.h"

namespace shardlens::profiler {

struct StepMemory {
  int64_t step = 0;
  int64_t time_ns = 0;  // of the highest moment; of the step's beginning if it came before that
  int64_t bytes = 0;    // then
  CategoryBytes categories{};
  std::optional<int64_t> reserved_bytes;  // the most in the step; nothing: no segment was recorded
};

/// Returns the steps in the order in which they ran, as `profile report` counts them: what was
/// alive when a step began counts, and so does what came between it and the next. Bytes are those
/// of the timeline (timeline.h). Goes through the events three times.
std::vector<StepMemory> step_memory(const EventSource& source);

}  // namespace shardlens::profiler
