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

// The part of the host's time between two items that a program takes by itself: recording it slows
// the host down beyond what a trace tells apart, by hooks in Python. It is the part with which two
// steps of one author agree that are bound by their host (a16 of published_times.py, which leaves
// them out), on the host that recorded them.
constexpr double kProgramsOwn = 0.78;

constexpr int kRepeats = 4;  // of a round, until it has settled

/// The seconds that the driver and libraries take for a call, which a null device does not: 2 us
/// for a launch (NVIDIA's blog "Constant-time launch for straight-line CUDA graphs"), more where a
/// library chooses an algorithm. The last ones are assumed.
double call_seconds(WorkKind kind) {
  switch (kind) {
    case WorkKind::kernel:
      return 2.0e-6;
    case WorkKind::product:
    case WorkKind::library_call:
      return 5e-6;
    case WorkKind::copy:
    case WorkKind::set:
      return 3e-6;
    case WorkKind::collective:
    case WorkKind::graph_launch:
      return 10e-6;
    case WorkKind::event_record:
    case WorkKind::event_wait:
    case WorkKind::event_query:
      return 0.5e-6;
    default:
      return 1e-6;
  }
}

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

/// A task of the simulation, with the cost of its work.
struct CostedTask {
  Task task;
  Cost cost;
};

/// Turns rounds of a trace into tasks.
class TaskBuilder {
 public:
  TaskBuilder(const WorkTrace& trace, const Gpu& gpu, const StepTimeOptions& options)
      : trace_(trace), gpu_(gpu), options_(options) {
    for (size_t i = 0; i < trace.items.size(); ++i) {
      if (trace.items[i].graph != 0) captured_[trace.items[i].graph].push_back(i);
    }
  }

  /// Adds a round, before which the trace has `before`, if that is not null; `host_ns` gives the
  /// host's time by item, if not empty.
  void add(const TraceRound& round, const TraceRound* before, std::span<const int64_t> host_ns) {
    find_shares(round);
    const size_t first = tasks_.size();
    before_ = before;
    places_.clear();
    for (size_t i = 0; i < round.size(); ++i) {
      const size_t index = round.items[i];
      const WorkItem& item = trace_.items[index];
      const int64_t ns = host_ns.empty() ? trace_.host_ns(index) : host_ns[i];
      places_.push_back(static_cast<int64_t>(tasks_.size()));
      const double host_seconds = static_cast<double>(ns) * 1e-9 * kProgramsOwn * options_.host;
      add_item(item, index, host_seconds, round);
    }
    previous_places_ = std::move(places_);
    begins_.push_back(first);
  }

  std::span<const CostedTask> tasks() const { return tasks_; }
  const std::vector<size_t>& begins() const { return begins_; }

 private:
  void add_item(const WorkItem& item, size_t index, double host_seconds, const TraceRound& round) {
    const Work& work = trace_.work_of(item);
    Task task{.stream = item.stream,
              .host_seconds = host_seconds,
              .call_seconds = call_seconds(work.kind)};
    if (item.graph != 0) {  // it runs when its graph is launched
      task.kind = TaskKind::mark;
      tasks_.push_back({task, {}});
      return;
    }
    if (work.kind == WorkKind::graph_launch) {
      launch_graph(task, item);
      return;
    }
    task.kind = kind_of(work.kind);
    task.event = place_of(item.about, round);
    Cost cost;
    if (task.kind == TaskKind::run) cost = cost_of(work, share_of(index));
    task.seconds = cost.seconds;
    task.blocks = work.kind == WorkKind::copy && work.copy.blocks;
    task.joins_previous = work.kind == WorkKind::collective && work.collective.joins_previous;
    tasks_.push_back({task, cost});
  }

  /// The work of a graph runs without the host, in the order in which it was captured.
  void launch_graph(Task task, const WorkItem& launch) {
    task.kind = TaskKind::mark;
    tasks_.push_back({task, {}});
    const auto captured = captured_.find(static_cast<uint32_t>(launch.about));
    if (captured == captured_.end()) return;
    for (const size_t index : captured->second) {
      const Work& work = trace_.work_of(trace_.items[index]);
      if (kind_of(work.kind) != TaskKind::run) continue;
      const Cost cost = cost_of(work, 1);
      tasks_.push_back({{.stream = launch.stream, .seconds = cost.seconds}, cost});
    }
  }

  static TaskKind kind_of(WorkKind kind) {
    switch (kind) {
      case WorkKind::kernel:
      case WorkKind::product:
      case WorkKind::library_call:
      case WorkKind::copy:
      case WorkKind::set:
      case WorkKind::collective:
        return TaskKind::run;
      case WorkKind::event_record:
        return TaskKind::record_event;
      case WorkKind::event_wait:
        return TaskKind::wait_event;
      case WorkKind::event_synchronize:
        return TaskKind::synchronize_event;
      case WorkKind::stream_synchronize:
        return TaskKind::synchronize_stream;
      case WorkKind::device_synchronize:
        return TaskKind::synchronize_device;
      default:
        return TaskKind::mark;
    }
  }

  /// The task of the item that an event belongs to, in this round or in the one before.
  int64_t place_of(int64_t about, const TraceRound& round) const {
    if (about < 0) return -1;
    const int64_t here = place_in(round, places_, static_cast<size_t>(about));
    if (here >= 0 || before_ == nullptr) return here;
    return place_in(*before_, previous_places_, static_cast<size_t>(about));
  }

  static int64_t place_in(const TraceRound& round, std::span<const int64_t> places, size_t item) {
    const auto found = std::ranges::lower_bound(round.items, item);
    if (found == round.items.end() || *found != item) return -1;
    const auto position = static_cast<size_t>(found - round.items.begin());
    return position < places.size() ? places[position] : -1;
  }

  Cost cost_of(const Work& work, double share) const {
    const Cost cost = cold_cost_of(work, share);
    return options_.calibration ? options_.calibration->corrected(trace_, work, cost) : cost;
  }

  Cost cold_cost_of(const Work& work, double share) const {
    switch (work.kind) {
      case WorkKind::product:
        return {product_seconds_in_step(gpu_, work.product), product_flops(work.product),
                WorkClass::products};
      case WorkKind::copy:
        return {copy_seconds(gpu_, work.copy), 0, WorkClass::copies};
      case WorkKind::set:
        return {streaming_seconds(gpu_, static_cast<double>(work.copy.bytes)), 0,
                WorkClass::kernels};
      case WorkKind::collective:
        return {collective_seconds(gpu_, work.collective.kind, work.collective.bytes,
                                   ranks_of(trace_.communicators[work.collective.communicator])),
                0, WorkClass::collectives};
      default:
        return kernel_cost(gpu_, trace_, work, share);
    }
  }

  /// Several kernels of one operator share its work: those over lists by their blocks, those of
  /// attention evenly.
  void find_shares(const TraceRound& round) {
    shares_.clear();
    const std::span<const size_t> items = round.items;
    for (size_t i = 0; i < items.size();) {
      size_t end = i + 1;
      if (const uint32_t call = call_at(items[i]); call != 0) {
        while (end < items.size() && call_at(items[end]) == call) ++end;
        if (end - i > 1) share_out(items.subspan(i, end - i), trace_.calls[call]);
      }
      i = end;
    }
  }

  void share_out(std::span<const size_t> items, const profiler::OperatorCall& call) {
    const bool is_list = is_over_lists(call);
    if (!is_list && !attention_of(trace_.strings[call.name], call)) return;
    double all = 0;
    for (const size_t item : items) all += is_list ? blocks_at(item) : 1;
    for (const size_t item : items) shares_[item] = (is_list ? blocks_at(item) : 1) / all;
  }

  uint32_t call_at(size_t index) const {
    const Work& work = trace_.work_of(trace_.items[index]);
    return work.kind == WorkKind::kernel ? work.call : 0;
  }

  double blocks_at(size_t index) const {
    const auto& grid = trace_.work_of(trace_.items[index]).launch.grid;
    return static_cast<double>(std::max(1U, grid[0])) * std::max(1U, grid[1]) *
           std::max(1U, grid[2]);
  }

  double share_of(size_t index) const {
    const auto found = shares_.find(index);
    return found == shares_.end() ? 1 : found->second;
  }

  const WorkTrace& trace_;
  const Gpu& gpu_;
  const StepTimeOptions& options_;
  std::map<uint32_t, std::vector<size_t>> captured_;  // items by graph
  std::map<size_t, double> shares_;                   // by item of the round
  std::vector<int64_t> places_, previous_places_;     // of a round's items among the tasks
  const TraceRound* before_ = nullptr;
  std::vector<CostedTask> tasks_;
  std::vector<size_t> begins_;  // of rounds among the tasks
};

/// When all that was asked for before the task `end` is done, and the host has come there.
double done_by(std::span<const TaskTimes> times, size_t end) {
  double done = 0;
  for (size_t i = 0; i < end; ++i) done = std::max(done, times[i].end);
  return done;
}

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

/// The rate of the data sheet for the type that most operations of the rounds have.
double peak_flops_of(const WorkTrace& trace, const Gpu& gpu, const Rounds& rounds) {
  double fp32 = 0, tf32 = 0, half = 0, fp8 = 0;
  for (const TraceRound& round : rounds.rounds) {
    for (const size_t item : round.items) {
      const Work& work = trace.work_of(trace.items[item]);
      if (work.kind != WorkKind::product) continue;
      const NumberType type = work.product.a;
      const bool is_tf32 = work.product.compute == NumberType::tf32;
      (is_fp8(type)    ? fp8
       : is_half(type) ? half
       : is_tf32       ? tf32
                       : fp32) += product_flops(work.product);
    }
  }
  const Rates rates = rates_of(&gpu, 1);
  const double most = std::max({fp32, tf32, half, fp8});
  const double tflops = most == fp8    ? 2 * rates.half_tflops
                        : most == tf32 ? rates.half_tflops / 2
                        : most == fp32 ? rates.fp32_tflops
                                       : rates.half_tflops;
  return (most == 0 ? rates.half_tflops : tflops) * 1e12;
}

double error_of(const StepTime& result, const Errors& errors) {
  double sum = result.waiting_for_host * errors.host;
  for (size_t i = 0; i < kWorkClasses; ++i) sum += result.by_class[i] * errors.by_class[i];
  return result.seconds > 0 ? sum / result.seconds : 0;
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

void add_doubts(const WorkTrace& trace, const Gpu& gpu, const Rounds& rounds, StepTime& result) {
  if (!result.is_measured && !result.is_calibrated) {
    result.doubts.push_back("no product of matrices on " + std::string(gpu.display_name) +
                            " was checked: its times are scaled from another GPU");
  }
  if (std::ranges::find(kComparedGpus, gpu.name) == kComparedGpus.end()) {
    result.doubts.push_back("no step that others measured on " + std::string(gpu.display_name) +
                            " was compared");
  }
  if (!rounds.are_steps && !rounds.are_alike) {
    result.doubts.push_back("nothing repeats: this is the time of all that was recorded");
  } else if (!rounds.are_alike) {
    result.doubts.push_back("no two steps of the recording do the same work");
  }
  const auto guessed = static_cast<size_t>(WorkClass::other_kernels);
  if (result.by_class[guessed] > 0.05 * result.seconds) {
    result.doubts.push_back("kernels outside PyTorch's operators are guessed by their threads");
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

StepTime step_time(const WorkTrace& trace, const Gpu& gpu, const StepTimeOptions& options) {
  StepTime result;
  const Rounds rounds = settled_rounds(trace);
  if (rounds.rounds.empty()) return result;
  TaskBuilder builder(trace, gpu, options);
  if (rounds.are_alike) {
    const TraceRound& before = rounds.rounds[rounds.rounds.size() - 2];
    for (int i = 0; i < kRepeats; ++i) builder.add(rounds.rounds.back(), &before, rounds.host_ns);
  } else {
    const TraceRound* before = nullptr;
    for (const TraceRound& round : rounds.rounds) {
      builder.add(round, before, {});
      before = &round;
    }
  }
  std::vector<Task> tasks;
  for (const CostedTask& costed : builder.tasks()) tasks.push_back(costed.task);
  const std::vector<TaskTimes> times = simulate(tasks);

  // The last of rounds that repeat has settled; if none repeat, all count.
  const size_t timed = rounds.are_alike ? 1 : builder.begins().size();
  const size_t first = builder.begins()[builder.begins().size() - timed];
  const double from = done_by(times, first), to = done_by(times, times.size());
  const auto count = static_cast<double>(timed);
  account(builder.tasks(), times, first, from, to, result);
  result.seconds = (to - from) / count;
  for (double* sum : {&result.waiting_for_host, &result.host_seconds, &result.flops}) *sum /= count;
  for (double& seconds : result.by_class) seconds /= count;
  for (double& seconds : result.work_by_class) seconds /= count;
  result.kernels /= static_cast<int64_t>(timed);
  result.rounds = static_cast<int>(rounds.rounds.size());
  result.are_steps = rounds.are_steps;
  const std::vector<size_t>& last = rounds.rounds.back().items;
  result.batch = throughput_of(trace, last.front(), last.back() + 1);
  result.peak_flops = peak_flops_of(trace, gpu, rounds);
  result.is_measured = has_measured_products(gpu);
  result.is_calibrated = options.calibration != nullptr;
  result.error =
      error_of(result, errors_on(gpu, has_measured_links(trace, gpu), options.calibration));
  add_doubts(trace, gpu, rounds, result);
  if (options.calibration != nullptr) add_calibration_doubts(*options.calibration, result);
  return result;
}

}  // namespace shardlens::planner
