#include "planner/time/tasks/simulated_events.h"

namespace shardlens::planner {

std::optional<double> SimulatedEvents::seconds_of(int64_t item) {
  if (item < 0 || item >= static_cast<int64_t>(trace_.items.size())) return std::nullopt;
  if (const size_t end = static_cast<size_t>(item) + 1; end > simulated_) {
    builder_.add_recorded_until(end);
    simulated_ = end;
    for (const CostedTask& costed : builder_.take_tasks()) {
      const TaskTimes times = simulation_.take(costed.task);
      if (costed.task.kind != TaskKind::record_event) continue;
      events_[static_cast<int64_t>(costed.item)] = times.end;
    }
  }
  const auto found = events_.find(item);
  return found == events_.end() ? std::nullopt : std::optional(found->second);
}

}  // namespace shardlens::planner
