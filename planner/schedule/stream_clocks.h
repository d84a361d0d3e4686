// Knows which actions must have ended when an action starts: the happens-before order over
// streams and waits, kept as one vector clock per action. Private to the planner; builders keep
// waits minimal with it, and `validate` looks for races with it.
#pragma once

#include <array>
#include <vector>

#include "planner/schedule/schedule.h"

namespace shardlens::planner {

/// The clocks of all actions. Append actions in the order of their ids; a wait names an id appended
/// before.
class StreamClocks {
 public:
  /// Returns `waits` without those that the stream's order or another wait implies, in rising
  /// order.
  std::vector<int> minimal_waits(Stream stream, std::vector<int> waits) const;

  void append(Stream stream, const std::vector<int>& waits);

  /// True if `earlier` must have ended when `later` starts.
  bool precedes(int earlier, int later) const;

 private:
  /// The last action of each stream that is known to have ended, including itself; -1: none.
  using Clock = std::array<int, kStreams>;

  static Clock nothing();
  bool holds(const Clock& clock, int action) const;
  Clock clock_of_next(Stream stream) const;
  void merge(Clock& into, int action) const;

  std::vector<Clock> clocks_;
  std::vector<Stream> streams_;
  Clock last_ = nothing();
};

}  // namespace shardlens::planner
