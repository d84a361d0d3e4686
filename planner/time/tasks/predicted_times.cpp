#include "planner/time/tasks/predicted_times.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>

#include "base/check.h"
#include "planner/time/tasks/task_builder.h"

namespace shardlens::planner {

namespace {

using profiler::GpuStream;
using profiler::GpuWork;
using profiler::WorkKind;
using profiler::WorkTrace;

int64_t ns_of(double seconds) { return std::llround(seconds * 1e9); }

GpuWork gpu_work_of(WorkKind kind) {
  if (kind == WorkKind::collective) return GpuWork::collective;
  if (kind == WorkKind::copy) return GpuWork::copy;
  return kind == WorkKind::set ? GpuWork::fill : GpuWork::kernel;
}

bool is_host_waiting(const Task& task) {
  return task.blocks || task.kind == TaskKind::synchronize_event ||
         task.kind == TaskKind::synchronize_stream || task.kind == TaskKind::synchronize_device;
}

/// Returns the stream whose work takes longest.
uint16_t busiest_stream(const std::vector<CostedTask>& tasks) {
  std::map<uint16_t, double> seconds = {{0, 0}};
  for (const CostedTask& costed : tasks) seconds[costed.task.stream] += costed.task.seconds;
  const auto second = [](const auto& one) { return one.second; };
  return std::ranges::max_element(seconds, {}, second)->first;
}

/// Returns the name of each piece of work, behind an empty one.
std::vector<std::string> names_of(const WorkTrace& trace) {
  std::vector<std::string> names = {""};
  for (const profiler::Work& work : trace.work) {
    names.push_back(trace.title_of(work));
  }
  return names;
}

}  // namespace

PredictedTimes::PredictedTimes(const WorkTrace& trace, const Gpu& gpu,
                               const StepTimeOptions& options) {
  check(!trace.empty(), "the times of no work");
  work_.names = names_of(trace);
  TaskBuilder builder(trace, gpu, options);
  builder.add_recorded_until(trace.items.size());
  const std::vector<CostedTask> tasks = builder.take_tasks();
  const uint16_t busiest = busiest_stream(tasks);
  // The simulation begins with the first item, after the host's time before it.
  const int64_t shift_ns = trace.items.front().time_ns -
                           ns_of(tasks.front().task.host_seconds + tasks.front().task.call_seconds);
  StreamSimulation simulation;
  for (const CostedTask& costed : tasks) {
    const TaskTimes times = simulation.take(costed.task);
    const profiler::WorkItem& item = trace.items[costed.item];
    const bool runs = costed.task.kind == TaskKind::run;
    if (is_host_waiting(costed.task)) {
      add_moment(item.time_ns, ns_of(times.end) + shift_ns);
    } else if (runs && costed.task.stream == busiest && item.graph == 0) {
      // The work of a graph was asked for when the graph captured it.
      add_moment(item.time_ns, ns_of(times.begin) + shift_ns);
      add_moment(item.time_ns, ns_of(times.end) + shift_ns);
    }
    if (!runs) continue;
    stream_of(costed.task.stream)
        .slices.push_back({.begin_ns = ns_of(times.begin - times.waited) + shift_ns,
                           .end_ns = ns_of(times.end) + shift_ns,
                           .name = item.work + 1,
                           .work = gpu_work_of(trace.work_of(item).kind)});
  }
  std::ranges::sort(work_.streams, {}, &GpuStream::number);
}

int64_t PredictedTimes::time_of(int64_t recorded_ns) const {
  if (moments_.empty()) return recorded_ns;
  const auto after = std::ranges::upper_bound(moments_, recorded_ns, {}, &Moment::recorded_ns);
  if (after == moments_.begin()) {
    return after->predicted_ns - (after->recorded_ns - recorded_ns);
  }
  const Moment& before = *(after - 1);
  const int64_t beyond_ns = recorded_ns - before.recorded_ns;
  if (after == moments_.end()) return before.predicted_ns + beyond_ns;
  const auto part =
      static_cast<double>(beyond_ns) / static_cast<double>(after->recorded_ns - before.recorded_ns);
  return before.predicted_ns +
         std::llround(part * static_cast<double>(after->predicted_ns - before.predicted_ns));
}

int64_t PredictedTimes::end_ns() const {
  int64_t end_ns = 0;
  for (const GpuStream& stream : work_.streams) {
    end_ns = std::max(end_ns, stream.slices.back().end_ns);
  }
  return end_ns;
}

void PredictedTimes::add_moment(int64_t recorded_ns, int64_t predicted_ns) {
  if (!moments_.empty()) {
    const Moment& last = moments_.back();
    check(recorded_ns >= last.recorded_ns, "the items of a trace are not in order");
    predicted_ns = std::max(predicted_ns, last.predicted_ns);
    if (recorded_ns == last.recorded_ns && predicted_ns == last.predicted_ns) return;
  }
  moments_.push_back({recorded_ns, predicted_ns});
}

GpuStream& PredictedTimes::stream_of(int64_t number) {
  const auto known = std::ranges::find(work_.streams, number, &GpuStream::number);
  if (known != work_.streams.end()) return *known;
  return work_.streams.emplace_back(GpuStream{.device = 0, .number = number});
}

}  // namespace shardlens::planner
