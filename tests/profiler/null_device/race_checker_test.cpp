#include "profiler/null_device/checks/race_checker.h"

#include <algorithm>
#include <array>
#include <catch2/catch_test_macros.hpp>
#include <cstdio>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

using shardlens::profiler::AddressRange;
using shardlens::profiler::AddressRanges;
using shardlens::profiler::RaceChecker;
using shardlens::profiler::StreamOrder;
using Lines = std::vector<std::string>;

namespace {

constexpr uint64_t kA = 20, kB = 21;  // non-blocking streams
constexpr uint64_t kEvent = 50;
constexpr AddressRange kMemory{0x1000, 0x9000};
constexpr AddressRange kBlock{0x1000, 0x2000};

RaceChecker checker_with_memory() {
  RaceChecker checker;
  checker.order().create(kA, false);
  checker.order().create(kB, false);
  checker.give(kMemory);
  return checker;
}

void read(RaceChecker& checker, uint64_t stream, AddressRange range = kBlock) {
  checker.use(stream, range, false, "reader");
}

void write(RaceChecker& checker, uint64_t stream, AddressRange range = kBlock) {
  checker.use(stream, range, true, "writer");
}

}  // namespace

TEST_CASE("a set of addresses joins and cuts ranges") {
  AddressRanges set;
  set.add({10, 20});
  set.add({20, 30});
  set.add({40, 50});
  CHECK(set.cover({10, 30}));
  CHECK_FALSE(set.cover({10, 31}));
  CHECK_FALSE(set.cover({25, 45}));
  set.add({25, 45});
  CHECK(set.cover({10, 50}));
  set.remove({15, 16});
  CHECK(set.cover({10, 15}));
  CHECK(set.cover({16, 50}));
  CHECK_FALSE(set.overlap({15, 16}));
  CHECK(set.overlap({15, 17}));
  set.remove({0, 100});
  CHECK_FALSE(set.overlap({0, 100}));
}

TEST_CASE("two streams race until one waits for an event of the other") {
  RaceChecker checker = checker_with_memory();
  read(checker, kA);
  SECTION("no wait") {
    write(checker, kB, {0x1800, 0x3000});
    CHECK(checker.take_findings() ==
          Lines{"race: writer (stream 21) writes 0x1800 + 2048 bytes, not ordered after reader "
                "(stream 20) which reads it"});
  }
  SECTION("a wait") {
    checker.order().record(kEvent, kA);
    checker.order().wait(kB, kEvent);
    write(checker, kB);
    CHECK(checker.take_findings().empty());
  }
  SECTION("an event recorded again orders work since then") {
    checker.order().record(kEvent, kA);
    read(checker, kA);
    checker.order().record(kEvent, kA);
    checker.order().wait(kB, kEvent);
    write(checker, kB);
    CHECK(checker.take_findings().empty());
  }
  SECTION("an event recorded before the use does not order it") {
    checker.order().record(kEvent, kA);
    read(checker, kA);
    checker.order().wait(kB, kEvent);
    write(checker, kB);
    CHECK(checker.take_findings().size() == 1);
  }
  SECTION("a wait before the event is recorded orders nothing") {
    checker.order().wait(kB, kEvent);
    checker.order().record(kEvent, kA);
    write(checker, kB);
    CHECK(checker.take_findings().size() == 1);
  }
  SECTION("a destroyed event orders nothing more, but earlier waits hold") {
    checker.order().record(kEvent, kA);
    checker.order().wait(kB, kEvent);
    checker.order().forget(kEvent);
    write(checker, kB);
    checker.order().wait(0, kEvent);
    CHECK(checker.take_findings().empty());
    write(checker, 0);
    CHECK(checker.take_findings().size() == 1);
  }
  SECTION("two reads never race") {
    read(checker, kB);
    CHECK(checker.take_findings().empty());
  }
}

TEST_CASE("work that the host has waited for is before work that it enqueues") {
  RaceChecker checker = checker_with_memory();
  write(checker, kA);
  checker.order().record(kEvent, kA);
  SECTION("a stream") { checker.order().synchronize_stream(kA); }
  SECTION("an event") { checker.order().synchronize_event(kEvent); }
  SECTION("the device") { checker.order().synchronize_device(); }
  write(checker, kB);
  CHECK(checker.take_findings().empty());
  checker.order().synchronize_stream(0);  // unrelated to B
  read(checker, kA);
  CHECK(checker.take_findings().size() == 1);
}

TEST_CASE("the legacy default stream orders blocking streams and no others") {
  constexpr uint64_t kBlocking = 30, kLate = 31;
  RaceChecker checker = checker_with_memory();
  checker.order().create(kBlocking, true);
  write(checker, kBlocking);
  write(checker, 0);
  checker.order().create(kLate, true);
  write(checker, kLate);
  write(checker, 1);  // cudaStreamLegacy
  write(checker, 2);  // cudaStreamPerThread
  CHECK(checker.take_findings().empty());
  write(checker, kA);
  CHECK(checker.take_findings().size() == 1);
  write(checker, 0);
  CHECK(checker.take_findings().size() == 1);
}

TEST_CASE("a block handed out again is ordered after its earlier uses") {
  RaceChecker checker = checker_with_memory();
  checker.allocate(kA, kBlock);
  checker.order().record(kEvent, kA);
  checker.order().wait(kB, kEvent);
  read(checker, kB);
  checker.free(kBlock);
  SECTION("handed out at once") {
    checker.allocate(kA, kBlock);
    CHECK(checker.take_findings() ==
          Lines{"race: allocation (stream 20) writes 0x1000 + 4096 bytes, not ordered after reader "
                "(stream 21) which reads it"});
  }
  SECTION("a part is handed out in order") {
    checker.order().record(kEvent, kB);
    checker.order().wait(kA, kEvent);
    checker.allocate(kA, {0x1000, 0x1200});
    write(checker, kA, {0x1000, 0x1200});
    CHECK(checker.take_findings().empty());
    read(checker, kA, {0x1000, 0x1201});
    CHECK(checker.take_findings() ==
          Lines{"use of freed memory: reader (stream 20) reads 0x1000 + 513 bytes"});
  }
}

TEST_CASE("memory that the driver has not allocated or has freed is unknown") {
  RaceChecker checker = checker_with_memory();
  write(checker, kA, {0x8000, 0x9001});
  CHECK(checker.take_findings() ==
        Lines{"use of unknown memory: writer (stream 20) writes 0x8000 + 4097 bytes"});
  write(checker, kA);
  checker.take_back(kBlock);
  read(checker, kB);
  CHECK(checker.take_findings().size() == 1);
  checker.give(kBlock);
  read(checker, kB);  // knows nothing of A's write
  CHECK(checker.take_findings().empty());
  write(checker, kB, {0, 0});  // no byte
  CHECK(checker.take_findings().empty());
}

TEST_CASE("a finding is reported once, and very many are counted") {
  RaceChecker checker = checker_with_memory();
  for (int i = 0; i < 3; ++i) write(checker, i % 2 == 0 ? kA : kB);
  write(checker, kB);
  CHECK(checker.take_findings().size() == 2);  // B after A, A after B
  write(checker, kA);
  CHECK(checker.take_findings().empty());
  for (uint64_t i = 0; i < 105; ++i) write(checker, kA, {i, i + 1});
  const Lines findings = checker.take_findings();
  REQUIRE(findings.size() == 101);
  CHECK(findings.back() == "and 5 more");
}

// --- against brute force
// ---------------------------------------------------------------------------

namespace {

constexpr uint64_t kBytes = 16;
constexpr int kEvents = 3;
// The legacy default stream, two blocking ones, three that are not.
constexpr std::array<uint64_t, 6> kStreams = {0, 30, 31, 20, 21, 22};
constexpr size_t kBlockingStreams = 3;

using Nodes = std::set<int>;

struct Use {
  int node = 0;
  AddressRange range;
  bool writes = false;
};

/// The order of a program as a graph: a node for each use, action in a stream or synchronisation,
/// with all nodes that it is after, by transitive closure. In the words of CUDA's manual, an action
/// in the legacy stream waits for all blocking streams, and then all blocking streams wait for it.
class Graph {
 public:
  int act(size_t stream) {
    Nodes preds = host_;
    preds.insert(tails_[stream].begin(), tails_[stream].end());
    if (stream == 0) {
      for (size_t s = 1; s < kBlockingStreams; ++s)
        preds.insert(tails_[s].begin(), tails_[s].end());
    }
    const int node = add(preds);
    tails_[stream] = {node};
    if (stream == 0) {
      for (size_t s = 1; s < kBlockingStreams; ++s) tails_[s].insert(node);
    }
    return node;
  }
  void record(int event, size_t stream) { recorded_[event] = act(stream); }
  void wait(size_t stream, int event) {
    const int node = act(stream);
    if (recorded_[event] >= 0) before_[node].merge(closure(recorded_[event]));
  }
  void synchronize_stream(size_t stream) { host_.insert(act(stream)); }
  void synchronize_event(int event) {
    if (recorded_[event] >= 0) host_.insert(recorded_[event]);
  }
  void synchronize_device() {
    for (const Nodes& tail : tails_) host_.insert(tail.begin(), tail.end());
  }
  bool precedes(int earlier, int later) const { return before_[later].contains(earlier); }

 private:
  Nodes closure(int node) const {
    Nodes all = before_[node];
    all.insert(node);
    return all;
  }
  int add(const Nodes& preds) {
    Nodes all;
    for (const int pred : preds) all.merge(closure(pred));
    before_.push_back(all);
    return static_cast<int>(before_.size()) - 1;
  }

  std::vector<Nodes> before_;
  std::array<Nodes, kStreams.size()> tails_;
  std::array<int, kEvents> recorded_{-1, -1, -1};
  Nodes host_;
};

/// A random program, run by the graph and by the checker.
class Program {
 public:
  explicit Program(uint64_t seed) : random_(seed) {
    for (size_t s = 1; s < kStreams.size(); ++s) {
      checker_.order().create(kStreams[s], s < kBlockingStreams);
    }
    checker_.give({0, kBytes});
  }

  void step() {
    const size_t stream = pick(kStreams.size());
    const int event = static_cast<int>(pick(kEvents));
    const uint64_t event_handle = kEvent + static_cast<uint64_t>(event);
    const size_t kind = pick(40);
    if (kind < 20) {
      use(stream);
    } else if (kind < 28) {
      graph_.record(event, stream);
      checker_.order().record(event_handle, kStreams[stream]);
    } else if (kind < 37) {
      graph_.wait(stream, event);
      checker_.order().wait(kStreams[stream], event_handle);
    } else if (kind == 37) {
      graph_.synchronize_stream(stream);
      checker_.order().synchronize_stream(kStreams[stream]);
    } else if (kind == 38) {
      graph_.synchronize_event(event);
      checker_.order().synchronize_event(event_handle);
    } else if (pick(4) == 0) {
      graph_.synchronize_device();
      checker_.order().synchronize_device();
    }
  }

  const std::vector<Use>& uses() const { return uses_; }
  Lines findings() { return checker_.take_findings(); }

  bool races(size_t earlier, size_t later) const {
    const Use &a = uses_[earlier], &b = uses_[later];
    return a.range.overlaps(b.range) && (a.writes || b.writes) && !graph_.precedes(a.node, b.node);
  }

 private:
  size_t pick(size_t count) { return random_() % count; }

  void use(size_t stream) {
    const uint64_t begin = pick(kBytes);
    const AddressRange range{begin, begin + 1 + pick(std::min<uint64_t>(6, kBytes - begin))};
    const bool writes = pick(3) == 0;
    const std::string name = "use" + std::to_string(uses_.size());
    uses_.push_back({graph_.act(stream), range, writes});
    checker_.use(kStreams[stream], range, writes, name);
  }

  std::mt19937_64 random_;
  Graph graph_;
  RaceChecker checker_;
  std::vector<Use> uses_;
};

struct FoundRace {
  size_t earlier = 0, later = 0;
  AddressRange range;
};

FoundRace parsed(const std::string& line) {
  FoundRace found;
  unsigned long long begin = 0, bytes = 0, stream = 0;
  char word[8];
  REQUIRE(
      std::sscanf(line.c_str(),
                  "race: use%zu (stream %llu) %7s 0x%llx + %llu bytes, not ordered after use%zu",
                  &found.later, &stream, word, &begin, &bytes, &found.earlier) == 6);
  found.range = {begin, begin + bytes};
  return found;
}

}  // namespace

TEST_CASE("races in random programs are those of the transitive closure") {
  const uint64_t seed = std::random_device{}();
  CAPTURE(seed);
  size_t races = 0, without_race = 0;
  for (uint64_t trial = 0; trial < 3000; ++trial) {
    Program program(seed + trial);
    CAPTURE(trial);
    for (int i = 0; i < 25; ++i) program.step();
    std::vector<FoundRace> all;
    for (const std::string& line : program.findings()) all.push_back(parsed(line));
    // Every find is a race.
    for (const FoundRace& found : all) {
      REQUIRE(program.races(found.earlier, found.later));
      REQUIRE(found.range.begin >= program.uses()[found.earlier].range.begin);
      REQUIRE(found.range.end <= program.uses()[found.later].range.end);
    }
    // The first use that races on a byte is found there.
    for (uint64_t byte = 0; byte < kBytes; ++byte) {
      const auto on_byte = [&](size_t use) {
        return program.uses()[use].range.overlaps({byte, byte + 1});
      };
      const auto races_on_byte = [&](size_t later) {
        for (size_t earlier = 0; on_byte(later) && earlier < later; ++earlier) {
          if (on_byte(earlier) && program.races(earlier, later)) return true;
        }
        return false;
      };
      size_t first = 0;
      while (first < program.uses().size() && !races_on_byte(first)) ++first;
      const bool is_found = std::ranges::any_of(all, [&](const FoundRace& found) {
        return found.later == first && found.range.overlaps({byte, byte + 1});
      });
      REQUIRE(is_found == (first < program.uses().size()));
    }
    races += all.size();
    without_race += all.empty() ? 1 : 0;
  }
  CHECK(races > 1000);
  CHECK(without_race > 10);
}
