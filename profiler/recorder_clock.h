// Time from the processor's counter of ticks. LibTorch's allocator reads that for everything that
// it tells, and a second look at a clock would cost a recorder more than all else it does.
#pragma once

#include <c10/util/ApproximateClock.h>

#include <cstdint>

namespace shardlens::profiler {

/// Nanoseconds of std::chrono::steady_clock when LibTorch's counter (c10::getApproximateTime) stood
/// at `ticks`, which must be a recent reading of the calling thread's. Never falls on one thread.
/// Each thread looks at the clock itself once a millisecond, and so stays within 0.2 us of it. The
/// first call of a process takes 2 ms, to learn how long a tick is.
int64_t steady_ns(c10::approx_time_t ticks);

}  // namespace shardlens::profiler
