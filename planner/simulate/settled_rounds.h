// Finds when the rounds of a step have settled, as far as a rank's memory can tell: from then on
// they need not be simulated one by one. Private to the planner.
//
// [Note: why rounds may be left out]
// The answers of an allocator follow from its state and the requests. A round makes the same
// requests whenever it begins, so if it begins in a state in which an earlier one began, everything
// between the two will happen again, including peaks. The state must return twice, so that the
// events of a timeline, by which other devices are judged, hold a settled round more than once.
//
// Sometimes a state returns only after thousands of rounds: each new loss is taken while the one
// before is held, so that losses wander, 512 bytes at a time, through free memory. Therefore rounds
// are also left out when many have begun with the same bytes held, in the same number of blocks,
// and the same bytes reserved. Then blocks may be in other places than they would be, as in later
// steps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace shardlens::planner {

struct MemoryState {
  std::vector<int64_t> layout;  // everything that later answers depend on
  std::vector<int64_t> totals;  // what is held and reserved
};

/// Watches one step, or a part whose rounds all make the same requests.
class SettledRounds {
 public:
  /// Records that a round begins in this state. Returns how many of the `left` rounds to come,
  /// including this one, may be left out. `retries`: how many were counted so far.
  int64_t arrive(MemoryState state, int64_t left, int64_t retries);

  /// Returns how many retries the rounds that were left out would have added to the count.
  int64_t retries_left_out() const { return retries_left_out_; }

  /// Forgets all states: the next round is of another kind, or of another step.
  void forget() { visits_.clear(); }

 private:
  struct Visit {
    MemoryState state;
    int64_t retries = 0;
  };

  /// Returns the period after which the last state recurred twice; 0 if it did not.
  size_t period() const;
  bool is_steady() const;
  int64_t leave_out(int64_t rounds, size_t period);

  std::vector<Visit> visits_;
  int64_t retries_left_out_ = 0;
};

}  // namespace shardlens::planner
