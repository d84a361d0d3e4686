#include "runtime/comm/watchdog.h"
#include "base/fault.h"

#include <array>
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <chrono>
#include <deque>
#include <functional>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>

using namespace shardlens;
using namespace shardlens::runtime;
using Catch::Matchers::StartsWith;
using namespace std::chrono_literals;

namespace {

using Clock = std::chrono::steady_clock;

const Operation kReduction{37, "REDUCE_SCATTER", "block3", 1};

/// A device that passes a mark when the test says so.
class Device final : public WatchdogTarget {
 public:
  bool has_passed(size_t mark) override {
    if (is_broken) throw std::runtime_error("the device fell off the bus");
    return passed[mark];
  }
  Problem error() override { return has_error ? Problem("the link is down") : std::nullopt; }
  void stop() noexcept override { ++stops; }

  std::array<std::atomic<bool>, Watchdog::kMarks> passed{};
  std::atomic<bool> is_broken = false;
  std::atomic<bool> has_error = false;
  std::atomic<int> stops = 0;
};

size_t issue(Watchdog& watchdog, Device& device, const Operation& operation) {
  const size_t mark = watchdog.begin(operation);
  device.passed[mark] = false;
  watchdog.note_issue(mark);
  return mark;
}

std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const CommunicationError& error) {
    return error.what();
  }
  return "no error";
}

/// Waits until check throws, and returns what it throws.
std::string failure_of(Watchdog& watchdog) {
  const auto last_moment = Clock::now() + 20s;
  std::string text = "no error";
  while (text == "no error" && Clock::now() < last_moment) {
    std::this_thread::sleep_for(1ms);
    text = error_of([&] { watchdog.check({.step = 99, .kind = "LATER"}); });
  }
  return text;
}

bool becomes(const std::atomic<int>& value, int wanted) {
  const auto last_moment = Clock::now() + 20s;
  while (value != wanted && Clock::now() < last_moment) std::this_thread::sleep_for(1ms);
  return value == wanted;
}

struct World {
  AbortNote note;
  Device device;
  Watchdog watchdog;

  explicit World(std::chrono::nanoseconds deadline = 60s)
      : watchdog(device, {.rank = 3, .deadline = deadline, .note = &note}) {}
};

}  // namespace

TEST_CASE("any number of operations that end in time is let through", "[threads]") {
  World world;
  std::mutex mutex;
  std::deque<size_t> queue;
  bool ended = false;
  std::thread device([&] {
    for (;;) {
      const std::scoped_lock lock(mutex);
      if (ended && queue.empty()) return;
      if (queue.empty()) continue;
      world.device.passed[queue.front()] = true;
      queue.pop_front();
    }
  });
  const std::string error = error_of([&] {
    for (size_t i = 0; i < 20 * Watchdog::kMarks; ++i) {
      const size_t mark = issue(world.watchdog, world.device, kReduction);
      const std::scoped_lock lock(mutex);
      queue.push_back(mark);
    }
  });
  {
    const std::scoped_lock lock(mutex);
    ended = true;
  }
  device.join();
  CHECK(error == "no error");
  std::this_thread::sleep_for(3 * Watchdog::kPeriod);
  CHECK(error_of([&] { world.watchdog.check(kReduction); }) == "no error");
  CHECK(world.device.stops == 0);
  CHECK_FALSE(world.note.is_raised());
}

TEST_CASE("an operation that does not end is named, reported to all and stopped", "[threads]") {
  World world(100ms);
  issue(world.watchdog, world.device, kReduction);
  issue(world.watchdog, world.device, {38, "ALL_GATHER", "block1", -1});
  const std::string text = failure_of(world.watchdog);
  CHECK(text == "rank 3, step 37, REDUCE_SCATTER of block3 bucket 1: not finished within 0.1 s");
  CHECK(world.note.reason() == text);
  CHECK(becomes(world.device.stops, 1));
  CHECK(error_of([&] { world.watchdog.begin({39, "BARRIER"}); }) == text);
  CHECK(error_of([&] { world.watchdog.fail({40, "SUM"}, "something else"); }) == text);
  std::this_thread::sleep_for(3 * Watchdog::kPeriod);
  CHECK(world.device.stops == 1);
}

TEST_CASE("an operation whose call does not return is late, too", "[threads]") {
  World world(100ms);
  world.device.passed[world.watchdog.begin(kReduction)] = true;  // a mark of an earlier use
  CHECK_THAT(failure_of(world.watchdog), StartsWith("rank 3, step 37, REDUCE_SCATTER of block3"));
}

TEST_CASE("the deadline counts from the end of the previous operation", "[threads]") {
  World world(1s);
  const size_t first = issue(world.watchdog, world.device, kReduction);
  const size_t second = issue(world.watchdog, world.device, kReduction);
  std::this_thread::sleep_for(600ms);
  world.device.passed[first] = true;
  std::this_thread::sleep_for(600ms);
  world.device.passed[second] = true;
  std::this_thread::sleep_for(3 * Watchdog::kPeriod);
  CHECK(error_of([&] { world.watchdog.check(kReduction); }) == "no error");
  std::this_thread::sleep_for(1200ms);  // nothing in flight, nothing late
  CHECK(error_of([&] { world.watchdog.check(kReduction); }) == "no error");
}

TEST_CASE("an error of the transport, or of the device, names the oldest operation", "[threads]") {
  const bool of_device = GENERATE(false, true);
  World world;
  issue(world.watchdog, world.device, kReduction);
  (of_device ? world.device.is_broken : world.device.has_error) = true;
  CHECK(failure_of(world.watchdog) ==
        std::string("rank 3, step 37, REDUCE_SCATTER of block3 bucket 1: ") +
            (of_device ? "the device fell off the bus" : "the link is down"));
  CHECK(becomes(world.device.stops, 1));
}

TEST_CASE("a note that another rank raises stops the transport", "[threads]") {
  World world;
  issue(world.watchdog, world.device, kReduction);
  std::thread peer([&] { world.note.raise("rank 1 was killed"); });
  CHECK_THAT(
      failure_of(world.watchdog),
      StartsWith("rank 3, step ") && Catch::Matchers::EndsWith("stopped: rank 1 was killed"));
  CHECK(becomes(world.device.stops, 1));
  peer.join();
}

TEST_CASE("a failure on the host stops the transport", "[threads]") {
  World world;
  CHECK(error_of([&] { world.watchdog.fail(kReduction, "invalid argument"); }) ==
        "rank 3, step 37, REDUCE_SCATTER of block3 bucket 1: invalid argument");
  CHECK(world.note.reason() == failure_of(world.watchdog));
  CHECK(becomes(world.device.stops, 1));
}

TEST_CASE("a group's name may end before its operation does", "[threads]") {
  World world(100ms);
  {
    const std::string group = "a name too long for the short form of a string";
    issue(world.watchdog, world.device, {1, "ALL_GATHER", group, -1});
  }
  CHECK(failure_of(world.watchdog) ==
        "rank 3, step 1, ALL_GATHER of a name too long for the short form of a string: not "
        "finished within 0.1 s");
}

TEST_CASE("issuing waits while too many are in flight, and gives up with the rest", "[threads]") {
  World world(300ms);
  for (size_t i = 0; i < Watchdog::kMarks; ++i) issue(world.watchdog, world.device, kReduction);
  CHECK_THAT(error_of([&] { issue(world.watchdog, world.device, kReduction); }),
             Catch::Matchers::EndsWith("not finished within 0.3 s"));
}

TEST_CASE("a watchdog ends at once, whatever is in flight", "[threads]") {
  const auto start = Clock::now();
  {
    World world;
    issue(world.watchdog, world.device, kReduction);
  }
  CHECK(Clock::now() - start < 5s);
}
