#include "planner/time/step_time.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <span>
#include <string_view>

#include "planner/time/calibration.h"
#include "planner/time/collectives.h"
#include "planner/time/operators.h"
#include "planner/time/products.h"
#include "planner/time/rates.h"
#include "planner/time/rounds.h"
#include "planner/time/simulation.h"

namespace shardlens::planner {

namespace {

using profiler::NumberType;
using profiler::Work;
using profiler::WorkItem;
using profiler::WorkKind;
using profiler::WorkTrace;

/// The errors that nine of ten cases stay within, as parts of what is predicted.
struct Errors {
  std::array<double, kWorkClasses> by_class{};
  double host = 0.4;
};

/// The part of a cold error that is assumed to remain where the work itself was measured.
constexpr double kRemains = 0.5;

Errors errors_on(const Gpu& gpu, bool has_measured_links, const TimeCalibration* calibration) {
  Errors errors;
  const auto set = [&errors](WorkClass work_class, double error) {
    errors.by_class[static_cast<size_t>(work_class)] = error;
  };
  set(WorkClass::products, has_measured_products(gpu) ? 0.2 : 0.3);
  set(WorkClass::attention, 0.3);
  set(WorkClass::convolutions, 0.4);
  set(WorkClass::kernels, 0.25);
  set(WorkClass::other_kernels, 0.7);
  set(WorkClass::collectives, has_measured_links ? 0.2 : 0.4);
  set(WorkClass::copies, 0.3);
  for (size_t i = 0; calibration != nullptr && i < kWorkClasses; ++i) {
    const auto measured = calibration->error_of(static_cast<WorkClass>(i));
    if (measured) errors.by_class[i] = std::max(*measured, kRemains * errors.by_class[i]);
  }
  return errors;
}

/// When all that was asked for before the task `end` is done, and the host has come there.
double done_by(std::span<const TaskTimes> times, size_t end) {
  double done = 0;
  for (size_t i = 0; i < end; ++i) done = std::max(done, times[i].end);
  return done;
}

// The place of waits for other ranks among classes of work, all of which hide them.
constexpr size_t kWaitingForRanks = kWorkClasses;

struct Interval {
  double begin = 0;
  double end = 0;
  size_t work_class = 0;
};

/// Gives each moment between `from` and `to` to the class of the work that runs. Kernels come
/// before collectives and copies, which they hide.
void attribute(std::vector<Interval> intervals, double from, double to, StepTime& result) {
  std::vector<double> borders = {from, to};
  for (Interval& interval : intervals) {
    interval.begin = std::clamp(interval.begin, from, to);
    interval.end = std::clamp(interval.end, from, to);
    borders.push_back(interval.begin);
    borders.push_back(interval.end);
  }
  std::ranges::sort(borders);
  std::ranges::sort(intervals, {}, &Interval::begin);
  std::vector<Interval> running;
  size_t next = 0;
  for (size_t i = 0; i + 1 < borders.size(); ++i) {
    const double begin = borders[i], seconds = borders[i + 1] - begin;
    if (seconds <= 0) continue;
    while (next < intervals.size() && intervals[next].begin <= begin) {
      running.push_back(intervals[next++]);
    }
    std::erase_if(running, [begin](const Interval& one) { return one.end <= begin; });
    const auto first = std::ranges::min_element(running, {}, &Interval::work_class);
    if (first == running.end()) {
      result.waiting_for_host += seconds;
    } else if (first->work_class == kWaitingForRanks) {
      result.waiting_for_ranks += seconds;
    } else {
      result.by_class[first->work_class] += seconds;
    }
  }
}

/// Tells what the GPU does in the tasks from `first` on, between two moments.
void account(std::span<const CostedTask> tasks, std::span<const TaskTimes> times, size_t first,
             double from, double to, StepTime& result) {
  std::vector<Interval> intervals;
  for (size_t i = 0; i < tasks.size(); ++i) {
    if (tasks[i].task.kind != TaskKind::run || times[i].end <= from) continue;
    if (times[i].waited > 0) {
      intervals.push_back({times[i].begin - times[i].waited, times[i].begin, kWaitingForRanks});
    }
    intervals.push_back(
        {times[i].begin, times[i].end, static_cast<size_t>(tasks[i].cost.work_class)});
  }
  attribute(std::move(intervals), from, to, result);
  for (size_t i = first; i < tasks.size(); ++i) {
    const CostedTask& costed = tasks[i];
    result.host_seconds += costed.task.host_seconds + costed.task.call_seconds;
    if (costed.task.kind != TaskKind::run) continue;
    result.work_by_class[static_cast<size_t>(costed.cost.work_class)] += costed.cost.seconds;
    result.flops += costed.cost.flops;
    ++result.kernels;
  }
}

/// The rate of the data sheet for the type that most operations have.
double peak_flops_of(const WorkTrace& trace, const Gpu& gpu, std::span<const CostedTask> tasks) {
  double fp32 = 0, tf32 = 0, half = 0, fp8 = 0;
  for (const CostedTask& task : tasks) {
    const Work& work = trace.work_of(trace.items[task.item]);
    if (work.kind != WorkKind::product) continue;
    const NumberType type = work.product.a;
    const bool is_tf32 = work.product.compute == NumberType::tf32;
    (is_fp8(type)    ? fp8
     : is_half(type) ? half
     : is_tf32       ? tf32
                     : fp32) += product_flops(work.product);
  }
  const Rates rates = rates_of(&gpu, 1);
  const double most = std::max({fp32, tf32, half, fp8});
  const double tflops = most == fp8    ? 2 * rates.half_tflops
                        : most == tf32 ? rates.half_tflops / 2
                        : most == fp32 ? rates.fp32_tflops
                                       : rates.half_tflops;
  return (most == 0 ? rates.half_tflops : tflops) * 1e12;
}

bool has_measured_links(const WorkTrace& trace, const Gpu& gpu) {
  return std::ranges::all_of(trace.communicators, [&gpu](const auto& communicator) {
    const RankLayout ranks = ranks_of(communicator);
    return ranks.size < 2 || has_measured_collectives(gpu, ranks);
  });
}

/// The GPUs whose published steps were compared (docs/evidence.md).
constexpr std::array<std::string_view, 7> kComparedGpus = {"a100-40", "a100-80", "a800",   "h100",
                                                           "h200",    "rtx4090", "v100-16"};

void add_doubts(const WorkTrace& trace, const Rounds& rounds, StepTime& result) {
  if (!rounds.are_steps && rounds.stand_for.empty()) {
    result.doubts.push_back("nothing repeats: this is the time of all that was recorded");
  } else if (!rounds.are_alike) {
    result.doubts.push_back("no two steps of the recording do the same work");
  }
  const auto guessed = static_cast<size_t>(WorkClass::other_kernels);
  if (result.by_class[guessed] > 0.05 * result.seconds) {
    result.doubts.push_back("kernels outside PyTorch's operators are guessed by their threads");
  }
  if (rounds.others > 0) {
    result.doubts.push_back(std::to_string(rounds.others) + " of " +
                            std::to_string(rounds.others + rounds.rounds.size()) +
                            " steps do other work, such as an evaluation, and are left out");
  }
  if (!trace.faults.empty()) result.doubts.push_back(trace.faults.front());
}

/// Says what a calibration leaves cold, and whether its own times can be trusted.
void add_calibration_doubts(const TimeCalibration& calibration, StepTime& result) {
  constexpr double kWorthALine = 0.05, kLargeSpread = 0.1;
  for (size_t i = 0; i < kWorkClasses; ++i) {
    const auto work_class = static_cast<WorkClass>(i);
    const bool counts = result.by_class[i] > kWorthALine * result.seconds;
    if (!counts || work_class == WorkClass::other_kernels || calibration.error_of(work_class)) {
      continue;
    }
    result.doubts.push_back("the calibration has no " + std::string(to_string(work_class)));
  }
  if (calibration.spread() > kLargeSpread) {
    result.doubts.push_back("the times of the calibration differ by " +
                            std::to_string(std::lround(100 * calibration.spread())) +
                            " % when repeated: something else used the GPU, or its clock changed");
  }
}

}  // namespace

double error_of(const StepTime& time, const Gpu& gpu, bool has_measured_links,
                const TimeCalibration* calibration) {
  const Errors errors = errors_on(gpu, has_measured_links, calibration);
  double sum = time.waiting_for_host * errors.host;
  for (size_t i = 0; i < kWorkClasses; ++i) sum += time.by_class[i] * errors.by_class[i];
  // Waits for other ranks are as uncertain as the rest of the step.
  const double own = time.seconds - time.waiting_for_ranks;
  return own > 0 ? sum / own : 0;
}

void add_doubts_of(const Gpu& gpu, StepTime& time) {
  const std::string name(gpu.display_name);
  if (!time.is_measured && !time.is_calibrated) {
    time.doubts.push_back("no product of matrices on " + name +
                          " was checked: its times are scaled from another GPU");
  }
  if (std::ranges::find(kComparedGpus, gpu.name) == kComparedGpus.end()) {
    time.doubts.push_back("no step that others measured on " + name + " was compared");
  }
}

StepTime time_of_tasks(const WorkTrace& trace, const Gpu& gpu, const StepTimeOptions& options,
                       const StepTasks& step, std::span<const TaskTimes> times) {
  StepTime result;
  const size_t first = step.first_timed();
  const double from = done_by(times, first), to = done_by(times, times.size());
  const auto count = static_cast<double>(step.timed);
  account(step.tasks, times, first, from, to, result);
  result.seconds = (to - from) / count;
  for (double* sum :
       {&result.waiting_for_host, &result.waiting_for_ranks, &result.host_seconds, &result.flops}) {
    *sum /= count;
  }
  for (double& seconds : result.by_class) seconds /= count;
  for (double& seconds : result.work_by_class) seconds /= count;
  result.kernels /= static_cast<int64_t>(step.timed);
  const Rounds& rounds = step.rounds;
  result.rounds = static_cast<int>(rounds.rounds.size());
  result.are_steps = rounds.are_steps;
  result.stands_for = rounds.stand_for;
  const std::vector<size_t>& last = rounds.rounds.back().items;
  result.batch = throughput_of(trace, last.front(), last.back() + 1);
  result.peak_flops = peak_flops_of(trace, gpu, step.tasks);
  result.is_measured = has_measured_products(gpu);
  result.is_calibrated = options.calibration != nullptr;
  result.error = error_of(result, gpu, has_measured_links(trace, gpu), options.calibration);
  add_doubts_of(gpu, result);
  add_doubts(trace, rounds, result);
  if (options.calibration != nullptr) add_calibration_doubts(*options.calibration, result);
  return result;
}

StepTime step_time(const WorkTrace& trace, const Gpu& gpu, const StepTimeOptions& options) {
  const StepTasks step = step_tasks(trace, gpu, options);
  if (step.tasks.empty()) return {};
  return time_of_tasks(trace, gpu, options, step, simulate(simulated_tasks(step)));
}

}  // namespace shardlens::planner
