// Turns what a trace of work asks for into tasks of the simulation, with the host's time before and
// the cost on a GPU: rounds that repeat, or all items as they were recorded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <unordered_map>
#include <vector>

#include "planner/time/step_tasks.h"

namespace shardlens::planner {

class TaskBuilder {
 public:
  /// The trace, the GPU and a calibration must outlive the builder. The trace may get further items
  /// at its end.
  TaskBuilder(const profiler::WorkTrace& trace, const Gpu& gpu, const StepTimeOptions& options)
      : trace_(trace), gpu_(gpu), options_(options) {}

  /// Adds a round, before which the trace has `before`, if that is not null; `host_ns` gives the
  /// host's time by item, if not empty.
  void add(const TraceRound& round, const TraceRound* before, std::span<const int64_t> host_ns);

  /// Adds the items from the last call's `end` up to this one, as they were recorded. No operator
  /// may go on after the last of them.
  void add_recorded_until(size_t end);

  /// Returns the tasks that were added since the last call.
  std::vector<CostedTask> take_tasks();
  const std::vector<size_t>& begins() const { return begins_; }

 private:
  void find_captured();
  void add_item(size_t index, int64_t host_ns, int64_t event);
  void launch_graph(Task task, size_t index);
  int64_t place_of(int64_t about, const TraceRound& round) const;
  static int64_t place_in(const TraceRound& round, std::span<const int64_t> places, size_t item);
  Cost cost_of(const profiler::Work& work, double share) const;
  Cost cold_cost_of(const profiler::Work& work, double share) const;
  void find_shares(std::span<const size_t> items);
  size_t end_of_call(std::span<const size_t> items, size_t begin) const;
  void share_out(std::span<const size_t> items, const profiler::OperatorCall& call);
  uint32_t call_at(size_t index) const;
  double blocks_at(size_t index) const;
  double share_of(size_t index) const;
  int64_t next_task() const { return taken_ + static_cast<int64_t>(tasks_.size()); }

  const profiler::WorkTrace& trace_;
  const Gpu& gpu_;
  const StepTimeOptions options_;
  size_t searched_ = 0;                               // items, for those that a graph captures
  std::map<uint32_t, std::vector<size_t>> captured_;  // items by graph
  std::map<size_t, double> shares_;                   // by item of the round
  std::vector<int64_t> places_, previous_places_;     // of a round's items among the tasks
  const TraceRound* before_ = nullptr;
  size_t recorded_ = 0;                             // items that were added as they were recorded
  std::unordered_map<int64_t, int64_t> of_events_;  // tasks by the item that records an event
  int64_t taken_ = 0;
  std::vector<CostedTask> tasks_;
  std::vector<size_t> begins_;  // of rounds among the tasks
};

}  // namespace shardlens::planner
