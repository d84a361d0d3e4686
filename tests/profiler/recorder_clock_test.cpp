// Compares time from ticks with the clock that it stands for.
#include "profiler/recorder/clock.h"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <thread>
#include <vector>

using namespace std::chrono;
using shardlens::profiler::steady_ns;

namespace {

int64_t clock_ns() { return nanoseconds(steady_clock::now().time_since_epoch()).count(); }

struct Comparison {
  int64_t most_ns = 0;  // outside the clock's readings before and after
  bool falls = false;
};

/// The distance of a thread from the clock at several moments, each after a different pause.
Comparison compare() {
  Comparison result;
  int64_t last_ns = 0;
  for (int moment = 0; moment < 200; ++moment) {
    std::this_thread::sleep_for(microseconds(moment * 37 % 3000));
    const int64_t before_ns = clock_ns();
    const int64_t ns = steady_ns(c10::getApproximateTime());
    const int64_t after_ns = clock_ns();
    result.falls = result.falls || ns < last_ns;
    last_ns = ns;
    result.most_ns = std::max({result.most_ns, before_ns - ns, ns - after_ns});
  }
  return result;
}

}  // namespace

TEST_CASE("ticks follow the clock on every thread, and never fall") {
  std::vector<Comparison> results(3);
  std::vector<std::thread> threads;
  for (Comparison& result : results) threads.emplace_back([&result] { result = compare(); });
  for (std::thread& thread : threads) thread.join();
  for (const Comparison& result : results) {
    CHECK(!result.falls);
    CHECK(result.most_ns < 10'000);
  }
}
