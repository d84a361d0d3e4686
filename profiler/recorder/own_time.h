// Counts the time that the recorder takes on the program's threads, so that a trace of work can
// tell it from the program's own. It costs a branch while no trace is made.
//
// Counted is the code of our callbacks, and for each operator what PyTorch takes to pack its
// arguments for them, which is measured once (measure_calls of operator_calls.h). Hooks in Python
// are not counted.
#pragma once

#include <c10/util/ApproximateClock.h>

#include <atomic>
#include <cstdint>

namespace shardlens::profiler {

/// Counts the time from its construction to its end, unless the thread has one already.
class OwnTime {
 public:
  OwnTime() {
    if (is_counted.load(std::memory_order_relaxed) && depth_++ == 0) begin_ = now();
  }
  ~OwnTime() {
    if (is_counted.load(std::memory_order_relaxed) && depth_ > 0 && --depth_ == 0 && begin_ != 0) {
      ticks_.fetch_add(now() - begin_, std::memory_order_relaxed);
    }
  }
  OwnTime(const OwnTime&) = delete;
  OwnTime& operator=(const OwnTime&) = delete;

  /// Returns the ticks of c10::getApproximateTime that were counted on all threads since the last
  /// call.
  static int64_t take_ticks() { return ticks_.exchange(0, std::memory_order_relaxed); }

  /// Returns the ticks counted since then.
  static int64_t ticks() { return ticks_.load(std::memory_order_relaxed); }
  static void add_ticks(int64_t ticks) { ticks_.fetch_add(ticks, std::memory_order_relaxed); }

  /// True while a trace of work is made.
  static inline std::atomic<bool> is_counted = false;

 private:
  static int64_t now() { return static_cast<int64_t>(c10::getApproximateTime()); }

  static inline std::atomic<int64_t> ticks_ = 0;
  static inline thread_local int depth_ = 0;
  int64_t begin_ = 0;
};

}  // namespace shardlens::profiler
