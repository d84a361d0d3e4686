// When the events that a program records happen on a GPU: all that its trace of work has is
// simulated once, in order and as it was recorded, with the host's own time for each item. So a
// trace can be followed while it is made, and what comes later changes no answer.
#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>

#include "planner/time/simulation.h"
#include "planner/time/tasks/task_builder.h"

namespace shardlens::planner {

class SimulatedEvents {
 public:
  /// The trace, the GPU and a calibration must outlive the object. The trace may get further items
  /// at its end.
  SimulatedEvents(const profiler::WorkTrace& trace, const Gpu& gpu, const StepTimeOptions& options)
      : trace_(trace), builder_(trace, gpu, options) {}

  /// Returns when the event happens that an item records, in seconds since the trace began. Nothing
  /// if the item records none, or one that a CUDA graph captures.
  std::optional<double> seconds_of(int64_t item);

 private:
  const profiler::WorkTrace& trace_;
  TaskBuilder builder_;
  StreamSimulation simulation_;
  size_t simulated_ = 0;                        // items
  std::unordered_map<int64_t, double> events_;  // by item
};

}  // namespace shardlens::planner
