// When the rounds of a step have settled, so far as a rank's memory knows: from then on they need
// not be simulated one by one. Private to the planner.
//
// [Note: why rounds may be left out]
// What an allocator answers follows from its state and from what is asked. A round asks the same
// whenever it begins, so where it begins in a state in which an earlier one began, all between the
// two will happen again, peaks and all. Two such returns are waited for, so that the events of a
// timeline, which other devices are judged by, have those of a settled round more than once.
//
// Now and then a state returns only after thousands of rounds: each new loss is taken while the one
// before is held, and so they wander, 512 bytes at a time, through free memory. Rounds are left out
// too, therefore, when many have begun with as much memory held, in as many blocks, of as much
// reserved. Then blocks may come to lie otherwise than they would, as they may in later steps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace shardlens::planner {

struct MemoryState {
  std::vector<int64_t> layout;  // all that what happens next depends on
  std::vector<int64_t> totals;  // what is held and reserved
};

/// Watches one step, or a part of it whose rounds ask for the same.
class SettledRounds {
 public:
  /// A round begins in this state. Returns how many of the `left` rounds to come, this one among
  /// them, may be left out. `retries`: counted so far.
  int64_t arrive(MemoryState state, int64_t left, int64_t retries);

  /// How much all rounds that were left out would have added to the count.
  int64_t retries_left_out() const { return retries_left_out_; }

  /// The next round is of another kind, or of another step.
  void forget() { visits_.clear(); }

 private:
  struct Visit {
    MemoryState state;
    int64_t retries = 0;
  };

  /// After how many rounds the last state has come again, twice; 0: it has not.
  size_t period() const;
  bool is_steady() const;
  int64_t leave_out(int64_t rounds, size_t period);

  std::vector<Visit> visits_;
  int64_t retries_left_out_ = 0;
};

}  // namespace shardlens::planner
