// Finds when the rounds of a step have settled, as far as a rank's memory can tell: from then on
// they need not be simulated one by one. Private to the planner.
//
// [Note: why rounds may be left out]
// The answers of an allocator follow from its state and the requests. A round makes the same
// requests whenever it begins, so if it begins in a state in which an earlier one began, all
// between the two will happen again, peaks and all. Two such returns are waited for, so that the
// events of a timeline, by which other devices are judged, hold a settled round more than once.
//
// Sometimes a state returns only after thousands of rounds: each new loss is taken while the one
// before is held, so that losses wander, 512 bytes at a time, through free memory. Therefore rounds
// are also left out when many have begun with as much memory held, in as many blocks, of as much
// reserved. Then blocks may lie at other places than they would, as they may in later steps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace shardlens::planner {

struct MemoryState {
  std::vector<int64_t> layout;  // all that what happens next depends on
  std::vector<int64_t> totals;  // what is held and reserved
};

/// Watches one step, or a part of it whose rounds all make the same requests.
class SettledRounds {
 public:
  /// Says that a round begins in this state. Returns how many of the `left` rounds to come, this
  /// one among them, may be left out. `retries`: how many were counted so far.
  int64_t arrive(MemoryState state, int64_t left, int64_t retries);

  /// Returns how many retries the rounds that were left out would have added to the count.
  int64_t retries_left_out() const { return retries_left_out_; }

  /// Says that the next round is of another kind, or of another step.
  void forget() { visits_.clear(); }

 private:
  struct Visit {
    MemoryState state;
    int64_t retries = 0;
  };

  /// Returns after how many rounds the last state has come again, twice; 0: it has not.
  size_t period() const;
  bool is_steady() const;
  int64_t leave_out(int64_t rounds, size_t period);

  std::vector<Visit> visits_;
  int64_t retries_left_out_ = 0;
};

}  // namespace shardlens::planner
