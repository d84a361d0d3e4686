#include "planner/time/step_tasks.h"

#include <algorithm>
#include <map>
#include <span>
#include <utility>

#include "planner/time/calibration.h"
#include "planner/time/collectives.h"
#include "planner/time/operators.h"
#include "planner/time/products.h"
#include "planner/time/rates.h"

namespace shardlens::planner {

namespace {

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

  std::vector<CostedTask> take_tasks() { return std::move(tasks_); }
  const std::vector<size_t>& begins() const { return begins_; }

 private:
  void add_item(const WorkItem& item, size_t index, double host_seconds, const TraceRound& round) {
    const Work& work = trace_.work_of(item);
    Task task{.stream = item.stream,
              .host_seconds = host_seconds,
              .call_seconds = call_seconds(work.kind)};
    if (item.graph != 0) {  // it runs when its graph is launched
      task.kind = TaskKind::mark;
      tasks_.push_back({task, {}, index});
      return;
    }
    if (work.kind == WorkKind::graph_launch) {
      launch_graph(task, index);
      return;
    }
    task.kind = kind_of(work.kind);
    task.event = place_of(item.about, round);
    Cost cost;
    if (task.kind == TaskKind::run) cost = cost_of(work, share_of(index));
    task.seconds = cost.seconds;
    task.blocks = work.kind == WorkKind::copy && work.copy.blocks;
    task.joins_previous = work.kind == WorkKind::collective && work.collective.joins_previous;
    tasks_.push_back({task, cost, index});
  }

  /// The work of a graph runs without the host, in the order in which it was captured.
  void launch_graph(Task task, size_t index) {
    const WorkItem& launch = trace_.items[index];
    task.kind = TaskKind::mark;
    tasks_.push_back({task, {}, index});
    const auto captured = captured_.find(static_cast<uint32_t>(launch.about));
    if (captured == captured_.end()) return;
    for (const size_t one : captured->second) {
      const Work& work = trace_.work_of(trace_.items[one]);
      if (kind_of(work.kind) != TaskKind::run) continue;
      const Cost cost = cost_of(work, 1);
      tasks_.push_back({{.stream = launch.stream, .seconds = cost.seconds}, cost, one});
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

}  // namespace

std::vector<Task> simulated_tasks(const StepTasks& step) {
  std::vector<Task> tasks;
  for (const CostedTask& costed : step.tasks) tasks.push_back(costed.task);
  return tasks;
}

StepTasks step_tasks(const WorkTrace& trace, const Gpu& gpu, const StepTimeOptions& options) {
  StepTasks step{.rounds = settled_rounds(trace)};
  const std::vector<TraceRound>& rounds = step.rounds.rounds;
  if (rounds.empty()) return step;
  TaskBuilder builder(trace, gpu, options);
  if (step.rounds.are_alike) {
    const TraceRound& before = rounds[rounds.size() - 2];
    for (int i = 0; i < kRepeats; ++i) builder.add(rounds.back(), &before, step.rounds.host_ns);
  } else {
    const TraceRound* before = nullptr;
    for (const TraceRound& round : rounds) {
      builder.add(round, before, {});
      before = &round;
    }
  }
  step.tasks = builder.take_tasks();
  step.begins = builder.begins();
  // The last of rounds that repeat has settled; if none repeat, all count.
  step.timed = step.rounds.are_alike ? 1 : step.begins.size();
  return step;
}

}  // namespace shardlens::planner
