#include "planner/time/simulation.h"

#include <algorithm>
#include <deque>
#include <utility>

#include "base/check.h"

namespace shardlens::planner {

namespace {

class HostAndStreams {
 public:
  explicit HostAndStreams(std::span<const Task> tasks) : tasks_(tasks) {
    size_t streams = 1;
    for (const Task& task : tasks) streams = std::max<size_t>(streams, task.stream + 1U);
    streams_.resize(streams);
    times_.reserve(tasks.size());
  }

  std::vector<TaskTimes> run() {
    for (const Task& task : tasks_) times_.push_back(take(task));
    return std::move(times_);
  }

 private:
  struct Stream {
    double ready = 0;         // when all work on it has ended
    std::deque<double> ends;  // of the last tasks that ran on it
  };

  TaskTimes take(const Task& task) {
    host_ += task.host_seconds + task.call_seconds;
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

  TaskTimes run_on(Stream& stream, const Task& task) {
    wait_for_place(stream);
    TaskTimes times{.asked = host_};
    times.begin = std::max(stream.ready, host_ + kLaunchLatency);
    if (task.joins_previous && !times_.empty()) {
      times.begin = std::max(times.begin, times_.back().begin);
    }
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
  void wait_for_place(Stream& stream) {
    if (static_cast<int64_t>(stream.ends.size()) < kQueueDepth) return;
    host_ = std::max(host_, stream.ends.front());
    stream.ends.pop_front();
  }

  TaskTimes host_waits(double until) {
    const double asked = host_;
    host_ = std::max(host_, until);
    return {asked, asked, host_};
  }

  double end_of(int64_t event) const {
    if (event < 0) return 0;
    check(event < static_cast<int64_t>(times_.size()), "a wait for a later event");
    return times_[static_cast<size_t>(event)].end;
  }

  double last_end() const {
    const auto last = std::ranges::max_element(streams_, {}, &Stream::ready);
    return last->ready;
  }

  std::span<const Task> tasks_;
  std::vector<Stream> streams_;
  std::vector<TaskTimes> times_;
  double host_ = 0;
};

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

std::vector<TaskTimes> simulate(std::span<const Task> tasks) { return HostAndStreams(tasks).run(); }

}  // namespace shardlens::planner
