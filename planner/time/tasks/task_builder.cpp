#include "planner/time/tasks/task_builder.h"

#include <algorithm>
#include <numeric>
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

TaskKind kind_of(WorkKind kind) {
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

}  // namespace

void TaskBuilder::add(const TraceRound& round, const TraceRound* before,
                      std::span<const int64_t> host_ns) {
  find_captured();
  find_shares(round.items);
  begins_.push_back(tasks_.size());
  before_ = before;
  places_.clear();
  for (size_t i = 0; i < round.size(); ++i) {
    const size_t index = round.items[i];
    places_.push_back(next_task());
    add_item(index, host_ns.empty() ? trace_.host_ns(index) : host_ns[i],
             place_of(trace_.items[index].about, round));
  }
  previous_places_ = std::move(places_);
}

void TaskBuilder::add_recorded_until(size_t end) {
  find_captured();
  std::vector<size_t> items(end - recorded_);
  std::iota(items.begin(), items.end(), recorded_);
  find_shares(items);
  for (const size_t index : items) {
    const WorkItem& item = trace_.items[index];
    const auto event = of_events_.find(item.about);
    const int64_t place = event == of_events_.end() ? -1 : event->second;
    if (trace_.work_of(item).kind == WorkKind::event_record) {
      of_events_[static_cast<int64_t>(index)] = next_task();
    }
    add_item(index, trace_.host_ns(index), place);
  }
  recorded_ = end;
}

std::vector<CostedTask> TaskBuilder::take_tasks() {
  taken_ = next_task();
  return std::exchange(tasks_, {});
}

void TaskBuilder::find_captured() {
  for (; searched_ < trace_.items.size(); ++searched_) {
    const uint32_t graph = trace_.items[searched_].graph;
    if (graph != 0) captured_[graph].push_back(searched_);
  }
}

/// `event` is the task that records the event that the item is about.
void TaskBuilder::add_item(size_t index, int64_t host_ns, int64_t event) {
  const WorkItem& item = trace_.items[index];
  const Work& work = trace_.work_of(item);
  Task task{.stream = item.stream,
            .host_seconds = static_cast<double>(host_ns) * 1e-9 * kProgramsOwn * options_.host,
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
  task.event = event;
  Cost cost;
  if (task.kind == TaskKind::run) cost = cost_of(work, share_of(index));
  task.seconds = cost.seconds;
  task.blocks = work.kind == WorkKind::copy && work.copy.blocks;
  task.joins_previous = work.kind == WorkKind::collective && work.collective.joins_previous;
  tasks_.push_back({task, cost, index});
}

/// The work of a graph runs without the host, in the order in which it was captured.
void TaskBuilder::launch_graph(Task task, size_t index) {
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

/// The task of the item that an event belongs to, in this round or in the one before.
int64_t TaskBuilder::place_of(int64_t about, const TraceRound& round) const {
  if (about < 0) return -1;
  const int64_t here = place_in(round, places_, static_cast<size_t>(about));
  if (here >= 0 || before_ == nullptr) return here;
  return place_in(*before_, previous_places_, static_cast<size_t>(about));
}

int64_t TaskBuilder::place_in(const TraceRound& round, std::span<const int64_t> places,
                              size_t item) {
  const auto found = std::ranges::lower_bound(round.items, item);
  if (found == round.items.end() || *found != item) return -1;
  const auto position = static_cast<size_t>(found - round.items.begin());
  return position < places.size() ? places[position] : -1;
}

Cost TaskBuilder::cost_of(const Work& work, double share) const {
  const Cost cost = cold_cost_of(work, share);
  return options_.calibration ? options_.calibration->corrected(trace_, work, cost) : cost;
}

Cost TaskBuilder::cold_cost_of(const Work& work, double share) const {
  switch (work.kind) {
    case WorkKind::product:
      return {product_seconds_in_step(gpu_, work.product), product_flops(work.product),
              WorkClass::products};
    case WorkKind::copy:
      return {copy_seconds(gpu_, work.copy), 0, WorkClass::copies};
    case WorkKind::set:
      return {streaming_seconds(gpu_, static_cast<double>(work.copy.bytes)), 0, WorkClass::kernels};
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
void TaskBuilder::find_shares(std::span<const size_t> items) {
  shares_.clear();
  for (size_t i = 0; i < items.size();) {
    const size_t end = end_of_call(items, i);
    if (end - i > 1) share_out(items.subspan(i, end - i), trace_.calls[call_at(items[i])]);
    i = end;
  }
}

/// Returns the place after the kernels of the call that begins at `begin`. Equal calls may follow
/// each other: one of attention launches no kernel twice, so the next one begins with the same.
size_t TaskBuilder::end_of_call(std::span<const size_t> items, size_t begin) const {
  const uint32_t call = call_at(items[begin]);
  size_t end = begin + 1;
  if (call == 0) return end;
  const bool repeats_kernels = is_over_lists(trace_.calls[call]);
  const uint32_t first = trace_.items[items[begin]].work;
  while (end < items.size() && call_at(items[end]) == call) {
    if (!repeats_kernels && trace_.items[items[end]].work == first) break;
    ++end;
  }
  return end;
}

void TaskBuilder::share_out(std::span<const size_t> items, const profiler::OperatorCall& call) {
  const bool is_list = is_over_lists(call);
  if (!is_list && !attention_of(trace_.strings[call.name], call)) return;
  double all = 0;
  for (const size_t item : items) all += is_list ? blocks_at(item) : 1;
  for (const size_t item : items) shares_[item] = (is_list ? blocks_at(item) : 1) / all;
}

uint32_t TaskBuilder::call_at(size_t index) const {
  const Work& work = trace_.work_of(trace_.items[index]);
  return work.kind == WorkKind::kernel ? work.call : 0;
}

double TaskBuilder::blocks_at(size_t index) const {
  const auto& grid = trace_.work_of(trace_.items[index]).launch.grid;
  return static_cast<double>(std::max(1U, grid[0])) * std::max(1U, grid[1]) * std::max(1U, grid[2]);
}

double TaskBuilder::share_of(size_t index) const {
  const auto found = shares_.find(index);
  return found == shares_.end() ? 1 : found->second;
}

}  // namespace shardlens::planner
