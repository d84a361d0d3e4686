#include "profiler/recorder/clock.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <thread>

namespace shardlens::profiler {

namespace {

constexpr auto kCalibration = std::chrono::milliseconds(2);
constexpr double kTrustedNs = 1e6;  // how long a reading of the clock is used
constexpr int kAttempts = 8;

/// One moment on both clocks.
struct Reading {
  int64_t ticks = 0;
  int64_t ns = 0;
};

int64_t ticks_now() { return static_cast<int64_t>(c10::getApproximateTime()); }

/// Reads both clocks several times and returns the narrowest pair, since the thread may lose its
/// core between the two readings.
Reading read_both() {
  Reading best;
  int64_t best_width = std::numeric_limits<int64_t>::max();
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const int64_t before = ticks_now();
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    const int64_t width = ticks_now() - before;
    if (width < best_width) best = {before + width / 2, std::chrono::nanoseconds(now).count()};
    best_width = std::min(best_width, width);
  }
  return best;
}

double measure_tick_ns() {
  const Reading first = read_both();
  std::this_thread::sleep_for(kCalibration);
  const Reading last = read_both();
  const auto ticks = static_cast<double>(std::max<int64_t>(last.ticks - first.ticks, 1));
  return static_cast<double>(last.ns - first.ns) / ticks;
}

double length_of_tick_ns() {
  static const double ns = measure_tick_ns();
  return ns;
}

}  // namespace

int64_t interval_ns(int64_t ticks) {
  return static_cast<int64_t>(static_cast<double>(ticks) * length_of_tick_ns());
}

int64_t steady_ns(c10::approx_time_t ticks) {
  const double tick_ns = length_of_tick_ns();
  thread_local Reading reading;
  thread_local int64_t last_ns = 0;
  const auto passed_ns = [&] {
    return static_cast<double>(static_cast<int64_t>(ticks) - reading.ticks) * tick_ns;
  };
  double passed = passed_ns();
  if (passed < 0 || passed > kTrustedNs) {
    reading = read_both();
    passed = passed_ns();
  }
  last_ns = std::max(last_ns, reading.ns + static_cast<int64_t>(passed));
  return last_ns;
}

}  // namespace shardlens::profiler
