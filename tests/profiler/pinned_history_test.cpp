// Tests that pinned memory of PyTorch's snapshots becomes events: sums follow those of a
// brute-force host allocator whose history was cut at a random entry.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <string>

#include "profiler/exchange/import_memory_viz.h"
#include "profiler/report/report.h"

namespace {

using namespace shardlens;
using namespace shardlens::profiler;
using Catch::Matchers::ContainsSubstring;
using nlohmann::json;

constexpr int64_t kMiB = int64_t{1} << 20;

json frames_of(int line) {
  return json::array({{{"name", "load"}, {"filename", "/home/a/train.py"}, {"line", line}}});
}

/// PyTorch's host allocator, with each block a segment.
class HostAllocator {
 public:
  void act(std::mt19937& random) {
    const auto choose = [&](int most) { return static_cast<int64_t>(random() % most); };
    if (segments_.empty() || choose(3) == 0) return give(1 + choose(8));
    auto one = std::next(segments_.begin(), choose(static_cast<int>(segments_.size())));
    if (one->second.is_used) {
      note("free_requested", *one);
      note("free_completed", *one);
    } else if (choose(2) == 0) {
      note("segment_free", *one);
      segments_.erase(one);
      return;
    } else {
      note("alloc", *one);
    }
    one->second.is_used = !one->second.is_used;
  }

  int64_t held() const {
    return sum([](const Segment&) { return true; });
  }
  int64_t used() const {
    return sum([](const Segment& one) { return one.is_used; });
  }

  /// Returns the snapshot, whose history has only the entries from the given one on.
  json snapshot(size_t first_entry) const {
    json at_end = json::array(), kept = json::array();
    for (const auto& [address, one] : segments_) {
      at_end.push_back({{"address", address},
                        {"total_size", one.bytes},
                        {"allocated_size", one.is_used ? one.bytes : 0},
                        {"blocks", json::array({{{"frames", frames_of(7)}}})}});
    }
    for (size_t i = first_entry; i < trace_.size(); ++i) kept.push_back(trace_[i]);
    const json device = {{"action", "alloc"}, {"addr", 4096}, {"size", 512}, {"time_us", 5}};
    return {{"device_traces", json::array({json::array({device})})},
            {"host_segments", at_end},
            {"host_traces", kept}};
  }
  size_t entries() const { return trace_.size(); }

 private:
  struct Segment {
    int64_t bytes = 0;
    bool is_used = false;
  };

  void give(int64_t mib) {
    next_ += 64 * kMiB;
    const auto [one, added] = segments_.emplace(next_, Segment{mib * kMiB, true});
    note("segment_alloc", *one);
    note("alloc", *one);
  }
  void note(const char* action, const std::pair<const int64_t, Segment>& one) {
    trace_.push_back({{"action", action},
                      {"addr", one.first},
                      {"size", one.second.bytes},
                      {"time_us", trace_.size()},
                      {"frames", frames_of(9)}});
  }
  template <class Condition>
  int64_t sum(const Condition& counts) const {
    int64_t bytes = 0;
    for (const auto& [address, one] : segments_) bytes += counts(one) ? one.bytes : 0;
    return bytes;
  }

  std::map<int64_t, Segment> segments_;
  json trace_ = json::array();
  int64_t next_ = 0;
};

}  // namespace

TEST_CASE("pinned memory of a snapshot has the sums of the allocator that wrote it") {
  const auto seed = std::random_device()();
  CAPTURE(seed);
  std::mt19937 random(seed);
  for (int run = 0; run < 50; ++run) {
    HostAllocator allocator;
    for (int i = 0; i < 40; ++i) allocator.act(random);
    const size_t first = run % 2 == 0 ? 0 : random() % allocator.entries();
    CAPTURE(run, first);
    const RankReport report = analyse(import_memory_viz(allocator.snapshot(first).dump()));
    const auto last = [&](Counter counter) {
      return report.counters[static_cast<size_t>(counter)].last;
    };
    const auto& pinned = report.spaces[static_cast<size_t>(Space::pinned)];
    REQUIRE(pinned.has_value());
    CHECK(pinned->end_bytes == allocator.held());
    CHECK(last(Counter::pinned_held) == allocator.held());
    CHECK(last(Counter::pinned_used) == allocator.used());
    CHECK(report.unmatched == 0);
    CHECK(report.peak_bytes() == 512);
  }
}

TEST_CASE("pinned memory of a snapshot is reported with its lines") {
  HostAllocator allocator;
  std::mt19937 random(1);
  allocator.act(random);
  const Profile profile = import_memory_viz(allocator.snapshot(0).dump());
  CHECK_THAT(profile.header.notice, ContainsSubstring("device and pinned memory only"));
  CHECK_THAT(report_text({analyse(profile)}),
             ContainsSubstring("pinned memory") && ContainsSubstring("train.py:9 load"));
}
