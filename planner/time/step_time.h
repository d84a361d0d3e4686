// How long a step takes, from a recording's trace of work: the cost of each piece of work on a GPU,
// the host's own time as it was measured, and the simulation of both.
//
// A step that repeats is simulated a few times, until it has settled; its time is that from the end
// of one step's work to the end of the next one's. What the GPU does in that time is told by the
// class of the work that runs; where none runs, it waits for the host.
//
// [Note: error bands] Each class of work has an error that nine of ten measured cases stay within
// (tests/planner/time). A step's band is the mean of them by the time that each class takes, as if
// all erred the same way. A calibration has errors of its own (planner/time/calibration.h).
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/gpus.h"
#include "planner/time/kernels.h"
#include "planner/time/simulation.h"
#include "planner/time/step_tasks.h"
#include "planner/time/throughput.h"
#include "profiler/recording/work.h"

namespace shardlens::planner {

struct StepTime {
  double seconds = 0;
  double error = 0;  // a part of `seconds`: nine of ten are expected within it
  /// The step's seconds by the class of the work that the GPU runs in them. Copies and
  /// collectives count only where no kernel runs beside them.
  std::array<double, kWorkClasses> by_class{};
  double waiting_for_host = 0;
  double waiting_for_ranks = 0;  // in collectives, where ranks are simulated together
  /// The same without overlap: how long the work of each class takes.
  std::array<double, kWorkClasses> work_by_class{};
  double host_seconds = 0;      // of a step, for asking
  double flops = 0;             // of products, attention and convolutions
  double peak_flops = 0;        // a second, of the type that does most of them
  int64_t kernels = 0;          // launches in a step
  Throughput batch;             // what a step trains on
  int rounds = 0;               // that were looked at
  bool are_steps = false;       // that the recording marks
  std::string stands_for = {};  // if they are not: Rounds::stand_for
  bool is_measured = false;     // the products' times on this GPU are, else scaled
  bool is_calibrated = false;
  std::vector<std::string> doubts;

  double low() const { return seconds * (1 - error); }
  double high() const { return seconds * (1 + error); }
  double used_flops() const { return seconds > 0 ? flops / seconds / peak_flops : 0; }
};

/// Returns by how much nine of ten such times are wrong at most, as a part, from the errors of what
/// they go to: see [Note: error bands].
double error_of(const StepTime& time, const Gpu& gpu, bool has_measured_links,
                const TimeCalibration* calibration = nullptr);

/// Adds what is in doubt about every time on a GPU.
void add_doubts_of(const Gpu& gpu, StepTime& time);

/// Returns the time of the tasks of a step, which the simulation gave these times.
StepTime time_of_tasks(const profiler::WorkTrace& trace, const Gpu& gpu,
                       const StepTimeOptions& options, const StepTasks& step,
                       std::span<const TaskTimes> times);

/// Returns the time of a step on `gpu`; `seconds` is 0 if the trace has no work.
StepTime step_time(const profiler::WorkTrace& trace, const Gpu& gpu,
                   const StepTimeOptions& options = {});

}  // namespace shardlens::planner
