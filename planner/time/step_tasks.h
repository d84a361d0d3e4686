// The tasks of a step, from a recording's trace of work: what the program asks for in each round
// that has settled, with the host's time before and the cost on a GPU.
#pragma once

#include <cstddef>
#include <vector>

#include "base/gpus.h"
#include "planner/time/kernels.h"
#include "planner/time/rounds.h"
#include "planner/time/simulation.h"
#include "profiler/recording/work.h"

namespace shardlens::planner {

class TimeCalibration;

struct StepTimeOptions {
  /// The target host's time, as a multiple of the recording host's without recorder.
  double host = 1;
  const TimeCalibration* calibration = nullptr;  // of the GPU; null: the model's own times
};

/// A task of the simulation, with the cost of its work and the item of the trace that asks for it.
struct CostedTask {
  Task task;
  Cost cost;
  size_t item = 0;
};

struct StepTasks {
  Rounds rounds = {};
  std::vector<CostedTask> tasks =
      {};  // a round that repeats comes several times, until it has settled
  std::vector<size_t> begins = {};  // of rounds among the tasks
  size_t timed = 1;                 // rounds at the end whose time counts

  /// Returns the first task whose time counts.
  size_t first_timed() const { return begins[begins.size() - timed]; }
};

/// Returns the tasks as the simulation takes them.
std::vector<Task> simulated_tasks(const StepTasks& step);

/// Returns no tasks if the trace has no work.
StepTasks step_tasks(const profiler::WorkTrace& trace, const Gpu& gpu,
                     const StepTimeOptions& options);

}  // namespace shardlens::planner
