// Measures what recording and reading cost. Figures are printed; only gross faults fail.

#include <fmt/format.h>
#include <sys/resource.h>
#include <time.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <filesystem>
#include <thread>
#include <vector>

#include "profiler/file/reader.h"
#include "profiler/file/writer.h"
#include "tests/support/recordings/large_recording.h"
#include "tests/support/recordings/random_events.h"
#include "tests/support/recordings/synthetic_profile.h"
#include "tests/support/temporary_folder.h"

namespace shardlens::profiler {
namespace {

using Clock = std::chrono::steady_clock;

/// The time that this thread had a core.
double cpu_seconds() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

int64_t most_resident_bytes() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return int64_t{usage.ru_maxrss} * 1024;
}

int64_t write_ten_million(const std::string& path) {
  const WriterCounts counts = tests::write_large_recording(path, 10'000'000);
  fmt::print("{} events, {} lost, {:.2f} bytes an event\n", counts.events, counts.lost,
             static_cast<double>(counts.bytes) / static_cast<double>(counts.events));
  return counts.events;
}

double append_ns(Writer& writer, const std::vector<Event>& events) {
  const double start = cpu_seconds();
  for (const Event& event : events) writer.append(event);
  return (cpu_seconds() - start) * 1e9 / static_cast<double>(events.size());
}

}  // namespace

TEST_CASE("ten million events are read in seconds and in little memory", "[long]") {
  const tests::TemporaryFolder folder;
  const std::string path = folder.file("rank0.slp");
  const int64_t written = write_ten_million(path);
  const int64_t before = most_resident_bytes();
  const auto start = Clock::now();
  const double cpu_start = cpu_seconds();
  Reader reader(path);
  const double open_seconds = cpu_seconds() - cpu_start;
  int64_t read = 0;
  for (std::vector<Event> block; reader.next(block);) read += static_cast<int64_t>(block.size());
  const double seconds = seconds_since(start);
  const double cpu = cpu_seconds() - cpu_start;
  fmt::print(
      "read in {:.2f} s, {:.2f} s on a core ({:.2f} s to open): {:.1f} M events/s, {} MiB "
      "more memory\n",
      seconds, cpu, open_seconds, static_cast<double>(read) / cpu / 1e6,
      (most_resident_bytes() - before) >> 20);
  CHECK(read == written);
  CHECK(seconds < 20);
  const double cpu_again = cpu_seconds();
  const Profile profile = read_profile(path);
  fmt::print("read at once in {:.2f} s on a core, at most {} MiB\n", cpu_seconds() - cpu_again,
             most_resident_bytes() >> 20);
  CHECK(static_cast<int64_t>(profile.events.size()) == written);
}

TEST_CASE("measure the cost of an append", "[.bench]") {
  const tests::TemporaryFolder folder;
  std::vector<Event> events = tests::synthetic_profile({.steps = 400}).events;
  for (const bool map : {true, false}) {
    std::vector<double> costs;
    for (int round = 0; round < 10; ++round) {
      Writer writer(folder.file("rank0.slp"), {}, {.map = map});
      append_ns(writer, {events.begin(), events.begin() + 200'000});  // touches pages
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      costs.push_back(append_ns(writer, {events.begin(), events.begin() + 60'000}));
      writer.close();
      CHECK(writer.counts().lost == 0);
    }
    std::ranges::sort(costs);
    fmt::print("append, {}: {:.1f} ns median, {:.1f} to {:.1f}\n", map ? "mapped" : "written",
               costs[costs.size() / 2], costs.front(), costs.back());
  }
  Writer writer(folder.file("rank0.slp"), {});
  events.resize(1'000'000);
  fmt::print("burst of a million: {:.1f} ns an event\n", append_ns(writer, events));
  writer.close();
  CHECK(writer.counts().lost == 0);
}

TEST_CASE("measure the cost of sealing", "[.bench]") {
  const tests::TemporaryFolder folder;
  const Profile profile = tests::synthetic_profile({.steps = 400});
  const auto start = Clock::now();
  const WriterCounts counts = tests::write_profile(folder.file("rank0.slp"), profile);
  fmt::print("sealed {} events in {:.3f} s, {} lost\n", counts.events, seconds_since(start),
             counts.lost);
}

}  // namespace shardlens::profiler
