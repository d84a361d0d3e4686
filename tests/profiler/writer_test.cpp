#include "profiler/file/writer.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <catch2/catch_get_random_seed.hpp>
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <map>
#include <random>
#include <stdexcept>
#include <thread>

#include "profiler/file/reader.h"
#include "profiler/file/sealer.h"
#include "tests/support/process.h"
#include "tests/support/recordings/random_events.h"
#include "tests/support/recordings/synthetic_profile.h"
#include "tests/support/temporary_folder.h"

namespace shardlens::profiler {
namespace {

constexpr WriterOptions kSmallBlocks{.block_events = 500, .blocks = 64};

/// Counts what a forked writer has done; outlives the writer.
class SharedCounter {
 public:
  SharedCounter()
      : memory_(::mmap(nullptr, sizeof(std::atomic<int64_t>), PROT_READ | PROT_WRITE,
                       MAP_SHARED | MAP_ANONYMOUS, -1, 0)) {
    if (memory_ == MAP_FAILED) throw std::bad_alloc();
    new (memory_) std::atomic<int64_t>(0);
  }
  ~SharedCounter() { ::munmap(memory_, sizeof(std::atomic<int64_t>)); }
  SharedCounter(const SharedCounter&) = delete;
  SharedCounter& operator=(const SharedCounter&) = delete;

  std::atomic<int64_t>& value() { return *static_cast<std::atomic<int64_t>*>(memory_); }

 private:
  void* memory_;
};

/// Runs `body` in its own process.
pid_t in_child(const std::function<int()>& body) {
  std::fflush(nullptr);
  const pid_t pid = ::fork();
  if (pid == 0) ::_exit(body());
  REQUIRE(pid > 0);
  return pid;
}

std::string text_of(int64_t number) { return "text " + std::to_string(number / 100); }

/// Appends numbered events, with a new label every hundred, at a pace that sealing keeps up with.
int append_for_ever(const std::string& path, bool map, std::atomic<int64_t>& returned) {
  Writer writer(path, tests::header_of_rank(3), {.block_events = 2000, .blocks = 64, .map = map});
  for (int64_t number = 0;; ++number) {
    Event event = tests::numbered_event(number);
    event.label = writer.intern(text_of(number));
    writer.append(event);
    returned.store(number + 1, std::memory_order_release);
    if (number % 1000 == 0) std::this_thread::sleep_for(std::chrono::microseconds(300));
  }
}

void check_numbered(const Profile& profile) {
  int64_t wrong = 0;
  int64_t last = -1;
  for (const Event& event : profile.events) {
    Event expected = tests::numbered_event(event.value);
    expected.label = event.label;
    if (event != expected || event.value <= last) ++wrong;
    if (profile.strings.at(event.label) != text_of(event.value)) ++wrong;
    last = event.value;
  }
  CHECK(wrong == 0);
}

void kill_at_random_moments(bool map, int rounds) {
  const uint32_t seed = Catch::getSeed();
  CAPTURE(seed, map);
  std::mt19937_64 engine(seed);
  int64_t events = 0;
  for (int round = 0; round < rounds; ++round) {
    const tests::TemporaryFolder folder;
    const std::string path = folder.file("rank3.slp");
    SharedCounter returned;
    const pid_t child = in_child([&] { return append_for_ever(path, map, returned.value()); });
    tests::wait_until([&] { return returned.value() > 0; });
    std::this_thread::sleep_for(std::chrono::microseconds(engine() % 60'000));
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    const Profile profile = read_profile(path);
    const auto read = static_cast<int64_t>(profile.events.size());
    CHECK(read + profile.judgement.lost_events >= returned.value());
    CHECK(profile.header.rank == 3);
    CHECK(profile.judgement.state == RecordingState::killed);
    CHECK(profile.judgement.faults.empty());
    check_numbered(profile);
    events += read;
  }
  fmt::print("seed {}: killed {} times, {} events read\n", seed, rounds, events);
}

/// Records until the file may not grow any further. Exit code 0: the reason was kept.
int fill_up(const std::string& path, std::atomic<int64_t>& returned) {
  Writer writer(path, {}, kSmallBlocks);
  const rlimit limit{100'000, 100'000};
  ::setrlimit(RLIMIT_FSIZE, &limit);
  std::mt19937_64 engine(1);
  const auto last_moment = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  for (int64_t number = 0; !writer.failure(); ++number) {
    writer.append(tests::numbered_event(number));
    if (number % 500 == 0) std::this_thread::sleep_for(std::chrono::microseconds(500));
    if (std::chrono::steady_clock::now() > last_moment) return 1;
  }
  writer.append(tests::numbered_event(0));
  writer.close();
  returned = writer.counts().events;
  const bool told = writer.failure()->find("cannot write " + path) != std::string::npos;
  return told && writer.counts().lost > 0 ? 0 : 2;
}

}  // namespace

TEST_CASE("random events are read as they were written") {
  const uint32_t seed = Catch::getSeed();
  CAPTURE(seed);
  std::mt19937_64 engine(seed);
  const tests::TemporaryFolder folder;
  Profile profile;
  profile.header = tests::SyntheticTrace().header();
  for (int i = 1; i < 100; ++i) profile.strings.push_back("label " + std::to_string(i));
  profile.events = tests::random_events(engine, 20'000);
  const std::string path = folder.file("rank0.slp");
  const WriterCounts counts = tests::write_profile(path, profile, kSmallBlocks);
  CHECK(counts.events == 20'000);
  CHECK(counts.lost == 0);
  CHECK(counts.bytes == static_cast<int64_t>(std::filesystem::file_size(path)));
  CHECK_FALSE(std::filesystem::exists(path + ".open"));
  const Profile read = read_profile(path);
  CHECK(read.header == profile.header);
  CHECK(read.strings == profile.strings);
  CHECK(read.events == profile.events);
  CHECK(read.judgement.lost_events == 0);
  CHECK(read.judgement.faults.empty());
}

TEST_CASE("a training run's recording takes at most 4 bytes an event, all included") {
  const tests::TemporaryFolder folder;
  for (const int steps : {4, 20, 200}) {
    const Profile profile = tests::synthetic_profile({.steps = steps});
    const std::string path = folder.file("rank0.slp");
    const WriterCounts counts = tests::write_profile(path, profile);
    CHECK(read_profile(path).events == profile.events);
    const double bytes = static_cast<double>(counts.bytes) / static_cast<double>(counts.events);
    fmt::print("{} steps, {} events: {:.2f} bytes an event\n", steps, counts.events, bytes);
    if (steps >= 20) CHECK(bytes <= 4);
  }
}

TEST_CASE("an empty recording is valid") {
  const tests::TemporaryFolder folder;
  const std::string path = folder.file("rank0.slp");
  { const Writer writer(path, tests::header_of_rank(1)); }
  const Profile profile = read_profile(path);
  CHECK(profile.header.rank == 1);
  CHECK(profile.events.empty());
  CHECK(profile.judgement.faults.empty());
}

TEST_CASE("equal texts have one number, which is that in the file") {
  const tests::TemporaryFolder folder;
  const std::string path = folder.file("rank0.slp");
  Writer writer(path, {});
  std::map<std::string, uint32_t> numbers = {{"", 0}};
  const std::string kilobyte(1000, 'x');
  CHECK(writer.intern("") == 0);
  for (int i = 0; i < 5000; ++i) {  // five areas' worth
    const std::string text = kilobyte + std::to_string(i);
    // Areas can be full for a moment.
    CHECK(tests::wait_until([&] { return (numbers[text] = writer.intern(text)) != 0; }));
    if (i % 10 == 0) CHECK(writer.intern(text) == numbers[text]);
  }
  const std::string long_text(100'000, 'y');
  const uint32_t cut = writer.intern(long_text);
  writer.close();
  CHECK_FALSE(writer.failure());
  const Profile profile = read_profile(path);
  for (const auto& [text, number] : numbers) CHECK(profile.strings.at(number) == text);
  CHECK(profile.strings.at(cut) == long_text.substr(0, 65536));
}

TEST_CASE("a burst of a million events is recorded without loss") {
  const tests::TemporaryFolder folder;
  const std::string path = folder.file("rank0.slp");
  Writer writer(path, {});
  for (int64_t number = 0; number < 1'000'000; ++number) {
    writer.append(tests::numbered_event(number));
  }
  writer.close();
  CHECK(writer.counts().lost == 0);
  CHECK(read_profile(path).events.size() == 1'000'000);
}

TEST_CASE("events that find no room are counted") {
  const tests::TemporaryFolder folder;
  const std::string path = folder.file("rank0.slp");
  Writer writer(path, {}, {.block_events = 100, .blocks = 2});
  for (int64_t number = 0; number < 500'000; ++number) {
    writer.append(tests::numbered_event(number));
  }
  writer.close();
  const WriterCounts counts = writer.counts();
  CHECK(counts.lost > 0);
  CHECK(counts.events + counts.lost == 500'000);
  const Profile profile = read_profile(path);
  CHECK(profile.judgement.lost_events == counts.lost);
  CHECK(static_cast<int64_t>(profile.events.size()) == counts.events);
  CHECK(profile.judgement.faults.empty());
}

TEST_CASE("several threads append and name strings", "[threads]") {
  constexpr int kThreads = 4;
  constexpr int64_t kEach = 5'000;
  const tests::TemporaryFolder folder;
  const std::string path = folder.file("rank0.slp");
  Writer writer(path, {}, {.block_events = 500, .blocks = 100});
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      for (int64_t i = 0; i < kEach; ++i) {
        Event event = tests::numbered_event(i * kThreads + thread);
        event.label = writer.intern(text_of(event.value));
        writer.append(event);
      }
    });
  }
  while (writer.counts().events < kThreads * kEach / 2) std::this_thread::yield();
  CHECK_FALSE(writer.failure());
  for (std::thread& thread : threads) thread.join();
  writer.close();
  CHECK(writer.counts().lost == 0);
  Profile profile = read_profile(path);
  REQUIRE(profile.events.size() == kThreads * kEach);
  std::ranges::sort(profile.events, {}, &Event::value);
  check_numbered(profile);
}

TEST_CASE("closing while others append ends the recording", "[threads]") {
  const tests::TemporaryFolder folder;
  const std::string path = folder.file("rank0.slp");
  Writer writer(path, {}, kSmallBlocks);
  std::atomic<bool> stop = false;
  std::thread thread([&] {
    for (int64_t number = 0; !stop; ++number) writer.append(tests::numbered_event(number));
  });
  while (writer.counts().events < 1000) std::this_thread::yield();
  writer.close();
  const WriterCounts counts = writer.counts();
  stop = true;
  thread.join();
  CHECK(writer.counts().events == counts.events);
  CHECK(static_cast<int64_t>(read_profile(path).events.size()) == counts.events);
}

TEST_CASE("kill -9 at random moments loses no event whose append had returned") {
  kill_at_random_moments(true, 20);
}

TEST_CASE("a killed process loses nothing without shared mappings, either") {
  kill_at_random_moments(false, 5);
}

TEST_CASE("a full disk stops the recording, not the program") {
  const tests::TemporaryFolder folder;
  const std::string path = folder.file("rank0.slp");
  SharedCounter events;
  const pid_t child = in_child([&] { return fill_up(path, events.value()); });
  int status = 0;
  ::waitpid(child, &status, 0);
  REQUIRE(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
  const Profile profile = read_profile(path);
  CHECK(static_cast<int64_t>(profile.events.size()) == events.value());
  CHECK(profile.judgement.lost_events > 0);
  CHECK(profile.judgement.bound() == PeakBound::about);
}

TEST_CASE("a recording that cannot begin is refused with a reason") {
  CHECK_THROWS_AS(Writer("/nowhere/rank0.slp", {}), std::runtime_error);
  const tests::TemporaryFolder folder;
  CHECK_THROWS_AS(Writer(folder.file("a"), {}, {.blocks = 1}), std::invalid_argument);
  CHECK_THROWS_AS(Writer(folder.file("a"), {}, {.block_events = 0}), std::invalid_argument);
}

TEST_CASE("a block that readers would call missing or empty is not sealed") {
  const tests::TemporaryFolder folder;
  Sealer sealer(folder.file("rank0.slp"), 1, {});
  const std::vector<Event> events(3);
  sealer.seal_events(1, 4, events);
  CHECK_THROWS_AS(sealer.seal_events(3, 4, events), std::logic_error);  // 2 is missing
  CHECK_THROWS_AS(sealer.seal_events(1, 4, events), std::logic_error);  // a second time
  CHECK_THROWS_AS(sealer.seal_events(2, 4, {}), std::logic_error);
  CHECK_THROWS_AS(sealer.seal_events(2, 3, events), std::logic_error);  // fewer lost than before
  sealer.seal_events(2, 4, events);
  sealer.seal_end(6, 4);
}

}  // namespace shardlens::profiler
