// Simulates what a host asks of a GPU, in the order in which it asks: the host goes on while
// streams work, a stream begins a task when the one before has ended and all that it waits for has
// happened, and the host waits where a program does. So launch-bound steps, exposed communication
// and hidden prefetches appear by themselves.
//
//   asked    = the host's clock + its own time + the call's
//   begin    = max(the stream's last end, the events it waits for, asked + the launch's latency,
//                  the moment at which the other ranks of a collective could begin it)
//   end      = begin + seconds
//
// A task that joins the one before begins with it. What shares the GPU does not slow each other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <vector>

namespace shardlens::planner {

enum class TaskKind : uint8_t {
  run,                 // a kernel, copy or collective
  record_event,        //
  wait_event,          // its stream waits for the task `event`
  synchronize_event,   // the host does
  synchronize_stream,  // the host waits for the task's stream
  synchronize_device,  // the host waits for all streams
  mark,                // nothing; its `asked` is the host's clock
};

struct Task {
  TaskKind kind = TaskKind::run;
  uint16_t stream = 0;
  bool blocks = false;          // the host waits for its end
  bool joins_previous = false;  // it begins when the task before it does, or later
  int64_t event = -1;           // the index of a record_event; -1: one that has happened long ago
  double host_seconds = 0;      // before it is asked for, without the call
  double call_seconds = 0;
  double seconds = 0;
  double not_before = 0;  // other ranks have come then
};

struct TaskTimes {
  double asked = 0;
  double begin = 0;
  double end = 0;
  double waited = 0;  // for other ranks, before `begin`

  bool operator==(const TaskTimes&) const = default;
};

/// The seconds from the host's call to the first moment at which an idle stream can begin.
constexpr double kLaunchLatency = 4e-6;

/// Launches that may wait before the host does, too: a stream's queue is full then.
constexpr int64_t kQueueDepth = 1024;

/// Simulates tasks one after the other: what comes later changes nothing.
class StreamSimulation {
 public:
  /// Returns when the next task was asked for, began and ended.
  TaskTimes take(const Task& task);

 private:
  struct Stream {
    double ready = 0;         // when all work on it has ended
    std::deque<double> ends;  // of the last tasks that ran on it
  };

  TaskTimes times_of(const Task& task);
  TaskTimes run_on(Stream& stream, const Task& task);
  void wait_for_place(Stream& stream);
  TaskTimes host_waits(double until);
  double end_of(int64_t event) const;
  double last_end() const;

  std::vector<Stream> streams_ = std::vector<Stream>(1);
  std::vector<double> ends_;  // of all tasks
  double last_begin_ = 0;     // of the task before
  double host_ = 0;
};

/// Returns when each task was asked for, began and ended.
std::vector<TaskTimes> simulate(std::span<const Task> tasks);

/// A task of one of several ranks.
struct RankTask {
  size_t rank = 0;
  size_t task = 0;
};

/// Tasks that begin together, as the parts of ranks in a collective do.
using Meeting = std::vector<RankTask>;

/// Simulates ranks that meet. Returns nothing if they wait for each other in a circle.
std::optional<std::vector<std::vector<TaskTimes>>> simulate_together(
    std::vector<std::vector<Task>> ranks, std::span<const Meeting> meetings);

}  // namespace shardlens::planner
