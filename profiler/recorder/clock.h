// Tells time by the processor's tick counter. LibTorch's allocator reads that counter for
// everything that it reports, and a second reading of a clock would cost a recorder more than all
// its other work.
#pragma once

#include <c10/util/ApproximateClock.h>

#include <cstdint>

namespace shardlens::profiler {

/// Returns the time of std::chrono::steady_clock, in nanoseconds, at which LibTorch's counter
/// (c10::getApproximateTime) stood at `ticks`, which must be a recent reading by the calling
/// thread. The result never decreases on one thread. Each thread reads the clock itself once a
/// millisecond, and so differs from it by at most 0.2 us. The first call of a process takes 2 ms,
/// to measure the length of a tick.
int64_t steady_ns(c10::approx_time_t ticks);

/// Returns the length of an interval of that counter, in nanoseconds.
int64_t interval_ns(int64_t ticks);

}  // namespace shardlens::profiler
