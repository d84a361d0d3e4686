#include "planner/time/simulation.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace shardlens::planner {

namespace {

/// Lets the tasks of a meeting begin when the last one can. Returns true if that is later than it
/// was known to be.
bool postpone(const Meeting& meeting, const std::vector<std::vector<TaskTimes>>& times,
              std::vector<std::vector<Task>>& ranks) {
  constexpr double kSame = 1e-12;
  double last = 0;
  for (const auto& [rank, task] : meeting) {
    const TaskTimes& one = times[rank][task];
    last = std::max(last, one.begin - one.waited);
  }
  bool is_later = false;
  for (const auto& [rank, task] : meeting) {
    double& not_before = ranks[rank][task].not_before;
    is_later = is_later || last > not_before + kSame;
    not_before = std::max(not_before, last);
  }
  return is_later;
}

}  // namespace

TaskTimes StreamSimulation::take(const Task& task) {
  host_ += task.host_seconds + task.call_seconds;
  if (task.stream >= streams_.size()) streams_.resize(task.stream + 1U);
  const TaskTimes times = times_of(task);
  last_begin_ = times.begin;
  ends_.push_back(times.end);
  return times;
}

TaskTimes StreamSimulation::times_of(const Task& task) {
  Stream& stream = streams_[task.stream];
  switch (task.kind) {
    case TaskKind::run:
      return run_on(stream, task);
    case TaskKind::record_event: {
      const double happens = std::max(stream.ready, host_);
      return {host_, happens, happens};
    }
    case TaskKind::wait_event:
      stream.ready = std::max(stream.ready, end_of(task.event));
      return {host_, stream.ready, stream.ready};
    case TaskKind::synchronize_event:
      return host_waits(end_of(task.event));
    case TaskKind::synchronize_stream:
      return host_waits(stream.ready);
    case TaskKind::synchronize_device:
      return host_waits(last_end());
    case TaskKind::mark:
      return {host_, host_, host_};
  }
  return {};
}

TaskTimes StreamSimulation::run_on(Stream& stream, const Task& task) {
  wait_for_place(stream);
  TaskTimes times{.asked = host_};
  times.begin = std::max(stream.ready, host_ + kLaunchLatency);
  if (task.joins_previous) times.begin = std::max(times.begin, last_begin_);
  if (task.not_before > times.begin) {
    times.waited = task.not_before - times.begin;
    times.begin = task.not_before;
  }
  times.end = times.begin + task.seconds;
  stream.ready = times.end;
  stream.ends.push_back(times.end);
  if (task.blocks) host_ = std::max(host_, times.end);
  return times;
}

/// The host waits until the stream's queue has a place.
void StreamSimulation::wait_for_place(Stream& stream) {
  if (static_cast<int64_t>(stream.ends.size()) < kQueueDepth) return;
  host_ = std::max(host_, stream.ends.front());
  stream.ends.pop_front();
}

TaskTimes StreamSimulation::host_waits(double until) {
  const double asked = host_;
  host_ = std::max(host_, until);
  return {asked, asked, host_};
}

double StreamSimulation::end_of(int64_t event) const {
  if (event < 0) return 0;
  check(event < static_cast<int64_t>(ends_.size()), "a wait for a later event");
  return ends_[static_cast<size_t>(event)];
}

double StreamSimulation::last_end() const {
  return std::ranges::max_element(streams_, {}, &Stream::ready)->ready;
}

std::optional<std::vector<std::vector<TaskTimes>>> simulate_together(
    std::vector<std::vector<Task>> ranks, std::span<const Meeting> meetings) {
  // Each pass settles at least the first meeting that is not settled yet, unless there is a circle.
  for (size_t pass = 0; pass < meetings.size() + 2; ++pass) {
    std::vector<std::vector<TaskTimes>> times;
    for (const std::vector<Task>& tasks : ranks) times.push_back(simulate(tasks));
    bool is_later = false;
    for (const Meeting& meeting : meetings) is_later = postpone(meeting, times, ranks) || is_later;
    if (!is_later) return times;
  }
  return std::nullopt;
}

std::vector<TaskTimes> simulate(std::span<const Task> tasks) {
  StreamSimulation simulation;
  std::vector<TaskTimes> times;
  times.reserve(tasks.size());
  for (const Task& task : tasks) times.push_back(simulation.take(task));
  return times;
}

}  // namespace shardlens::planner
