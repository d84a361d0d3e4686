// The times of a whole recording as they are predicted on a GPU: all that its trace of work has is
// simulated once, in order and as it was recorded, with the host's own time for each item.
//
// [Note: the GPU's clock] On a null device the clock of a recording is that of a host whose GPU
// answers at once. A host that runs ahead of its GPU allocates a whole step in a moment, and then
// waits. So moments of the recording are placed in the order of the busiest stream: what the host
// does between two requests lies between the end of the first one's work and the start of the
// second one's. Forward and backward then last as long as their kernels, and memory is in use while
// these run.
#pragma once

#include <cstdint>
#include <vector>

#include "base/gpus.h"
#include "planner/time/step_tasks.h"
#include "profiler/exchange/kineto/gpu_trace.h"
#include "profiler/recording/work.h"

namespace shardlens::planner {

class PredictedTimes {
 public:
  /// Simulates the trace, which must have items.
  PredictedTimes(const profiler::WorkTrace& trace, const Gpu& gpu, const StepTimeOptions& options);

  /// Returns the predicted time of a moment of the recording, in ns since the recording began.
  /// Before the first item and after the last one time passes as it was recorded.
  int64_t time_of(int64_t recorded_ns) const;

  /// Returns when the last work ends.
  int64_t end_ns() const;

  /// Returns the work of each stream, in these times.
  const profiler::GpuTrace& gpu_work() const { return work_; }

 private:
  /// See [Note: the GPU's clock].
  struct Moment {
    int64_t recorded_ns = 0;
    int64_t predicted_ns = 0;
  };

  void add_moment(int64_t recorded_ns, int64_t predicted_ns);
  profiler::GpuStream& stream_of(int64_t number);

  std::vector<Moment> moments_;  // both times rise, or stay
  profiler::GpuTrace work_;
};

}  // namespace shardlens::planner
