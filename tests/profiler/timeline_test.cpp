// Compares timelines, and pictures and tables made of them, with a replay of every event.

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>
#include <string>

#include "profiler/exchange/export_perfetto.h"
#include "profiler/exchange/export_table.h"
#include "profiler/exchange/timeline.h"
#include "profiler/report/block_tracker.h"
#include "profiler/report/report.h"
#include "tests/support/recordings/random_recording.h"
#include "tests/support/recordings/small_recording.h"
#include "tests/support/recordings/synthetic_profile.h"

namespace {

using namespace shardlens;
using namespace shardlens::profiler;
using Catch::Matchers::ContainsSubstring;
using nlohmann::json;

struct BruteForce {
  int64_t peak = 0;
  int64_t peak_ns = 0;
  BytesByCategory bytes{};  // at the peak
};

/// Sums up all that is alive after every event, by each block's last category.
BruteForce brute_force(const Profile& profile, Space space) {
  std::vector<Category> last(profile.events.size());
  std::map<uint64_t, size_t> alive;
  for (size_t i = 0; i < profile.events.size(); ++i) {
    const Event& event = profile.events[i];
    if (event.space != space) continue;
    if (event.kind == EventKind::alloc) alive[event.address] = i, last[i] = event.category;
    if (event.kind == EventKind::free) alive.erase(event.address);
    if (event.kind == EventKind::recategorise && alive.contains(event.address)) {
      last[alive[event.address]] = event.category;
    }
  }
  alive.clear();
  BruteForce found;
  BlockTracker tracker;
  std::vector<int64_t> given(profile.events.size());
  for (size_t i = 0; i < profile.events.size(); ++i) {
    const Event& event = profile.events[i];
    const int64_t placed = tracker.take(event);
    if (event.space != space) continue;
    if (event.kind == EventKind::alloc) {
      alive[event.address] = i;
      given[i] = space == Space::device ? placed : event.value;
    }
    if (event.kind == EventKind::free) alive.erase(event.address);
    BytesByCategory bytes{};
    int64_t total = 0;
    for (const auto& [address, at] : alive) {
      bytes[static_cast<size_t>(last[at])] += given[at];
      total += given[at];
    }
    if (total > found.peak) found = {total, event.time_ns, bytes};
  }
  return found;
}

void check_peak(const Profile& profile, size_t points) {
  const MemoryTimeline timeline = timeline_of(events_of(profile), points);
  const BruteForce expected = brute_force(profile, timeline.space);
  CHECK(timeline.points.size() <= points);
  CHECK(timeline.peak.total_bytes == expected.peak);
  CHECK(timeline.peak.time_ns == expected.peak_ns);
  CHECK(timeline.peak.bytes == expected.bytes);
  const auto highest = std::ranges::max_element(timeline.points, {}, &TimelinePoint::total_bytes);
  REQUIRE(highest != timeline.points.end());
  CHECK(highest->total_bytes == expected.peak);
  CHECK(highest->time_ns == expected.peak_ns);
  CHECK(std::ranges::is_sorted(timeline.points, {}, &TimelinePoint::time_ns));
}

Profile on_host(Profile profile) {
  std::erase_if(profile.events, [](const Event& event) { return event.space != Space::host; });
  return profile;
}

json perfetto(const std::vector<Profile>& profiles, size_t points) {
  std::ostringstream out;
  PerfettoWriter writer(out, 0);
  for (const Profile& profile : profiles) writer.add(events_of(profile), points);
  writer.finish();
  return json::parse(out.str());
}

}  // namespace

TEST_CASE("a timeline of any number of points keeps the peak, to the byte") {
  const uint64_t seed = std::random_device{}();
  INFO("seed " << seed);
  for (const bool expandable : {false, true}) {
    const Profile profile = tests::RandomRecorder(seed, expandable).record(2000).profile;
    for (const size_t points : {2, 3, 10, 100, 1000, 100'000}) {
      check_peak(profile, points);
      check_peak(on_host(profile), points);
    }
  }
  check_peak(tests::synthetic_profile({.steps = 2, .layers = 3}), 50);
  CHECK_THROWS_AS(timeline_of(events_of(tests::small_recording()), 1), std::invalid_argument);
}

TEST_CASE("a timeline knows where its peak was, and its largest tensors") {
  const MemoryTimeline timeline = timeline_of(events_of(tests::small_recording()), 100);
  CHECK(timeline.peak.place == Place{Phase::training, 0, 0});
  REQUIRE(timeline.largest.size() == 2);
  CHECK(timeline.largest[0].label == "mlp0.weight");
  CHECK(timeline.largest[0].place == Place{});
  CHECK(timeline.largest[1].bytes == int64_t{3} << 20);
  CHECK(timeline.largest[1].place == Place{Phase::training, 0, 0});
  CHECK(timeline_of(events_of(Profile{}), 100).peak.total_bytes == 0);
}

TEST_CASE("Perfetto's JSON parses and its counters peak where the recording does") {
  const uint64_t seed = std::random_device{}();
  INFO("seed " << seed);
  std::vector<Profile> profiles;
  for (int32_t rank = 0; rank < 3; ++rank) {
    profiles.push_back(
        tests::RandomRecorder(seed + static_cast<uint64_t>(rank), false).record(1000).profile);
    profiles.back().header.rank = rank;
  }
  const json trace = perfetto(profiles, 60);
  for (const Profile& profile : profiles) {
    const BruteForce expected = brute_force(profile, Space::device);
    int64_t peak = 0;
    int64_t peak_of_sums = 0;
    int64_t reserved = 0;
    for (const json& event : trace.at("traceEvents")) {
      if (event.at("ph") != "C" || event.at("pid") != profile.header.rank + 1) continue;
      int64_t sum = 0;
      for (const auto& [name, bytes] : event.at("args").items()) sum += bytes.get<int64_t>();
      int64_t& most = event.at("name") == "device bytes"     ? peak
                      : event.at("name") == "reserved bytes" ? reserved
                                                             : peak_of_sums;
      most = std::max(most, sum);
    }
    CHECK(peak == expected.peak);
    CHECK(peak_of_sums == expected.peak);
    CHECK(reserved == analyse(profile).reserved_peak_bytes().value_or(0));
  }
}

TEST_CASE("Perfetto has the tensors of the peak, with their stacks") {
  const uint64_t seed = std::random_device{}();
  INFO("seed " << seed);
  Profile profile = tests::RandomRecorder(seed, false).record(300).profile;
  const auto text = [&](const char* one) {
    profile.strings.emplace_back(one);
    return static_cast<uint32_t>(profile.strings.size() - 1);
  };
  const uint32_t file = text("/home/me/train.py");
  profile.stacks.frames.push_back({.file = file, .function = text("main"), .line = 20});
  profile.stacks.frames.push_back(
      {.caller = 1, .file = file, .function = text("Net.forward"), .line = 9});
  profile.stacks.of_label.assign(profile.strings.size(), 2);
  const BruteForce expected = brute_force(profile, Space::device);
  const auto peak_us = static_cast<double>(expected.peak_ns) / 1000;
  int64_t bytes = 0;
  size_t tensors = 0, ends = 0;
  const json trace = perfetto({profile}, 60);
  for (const json& event : trace.at("traceEvents")) {
    if (event.at("ph") == "b") {
      ++tensors;
      bytes += event.at("args").at("bytes").get<int64_t>();
      CHECK(event.at("ts").get<double>() <= peak_us);
      CHECK(event.at("args").at("stack") ==
            json{"Net.forward (/home/me/train.py:9)", "main (/home/me/train.py:20)"});
    }
    if (event.at("ph") == "e") {
      ++ends;
      CHECK(event.at("ts").get<double>() >= peak_us);
    }
  }
  REQUIRE(tensors < 200);  // else only the largest are there
  CHECK(tensors == ends);
  CHECK(bytes == expected.peak);
}

TEST_CASE("Perfetto's slices are the phases, steps and actions, by name") {
  Profile profile = tests::small_recording();
  const auto mark = [&](EventKind kind, int64_t time_ns) {
    profile.events.push_back({.time_ns = time_ns, .action = 0, .kind = kind});
  };
  mark(EventKind::action_end, 90'000'000);  // the beginning is lost
  mark(EventKind::action_begin, 100'000'000);
  mark(EventKind::action_end, 100'001'500);
  mark(EventKind::action_begin, 100'002'000);  // the end is lost
  profile.header.start_realtime_ns = 2'000;
  std::map<std::string, int> slices;
  std::vector<json> actions;
  const json trace = perfetto({profile}, 60);
  for (const json& event : trace.at("traceEvents")) {
    if (event.at("ph") != "X") continue;
    ++slices[event.at("name")];
    if (event.contains("args")) actions.push_back(event);
  }
  CHECK(slices == std::map<std::string, int>{{"starting", 1},
                                             {"training", 1},
                                             {"step 0", 1},
                                             {"step 1", 1},
                                             {"step 2", 1},
                                             {"FORWARD a", 2}});
  REQUIRE(actions.size() == 2);
  CHECK(actions[0].at("ts") == 100'002.0);
  CHECK(actions[0].at("dur") == 1.5);
  CHECK(actions[0].at("args").at("action") == 0);
}

TEST_CASE("tables have a line for each point, and quote what they must") {
  Profile profile = tests::small_recording(3);
  profile.strings[1] = "a \"b\", c";
  const std::vector<MemoryTimeline> timelines = {timeline_of(events_of(profile), 100)};
  std::ostringstream timeline;
  write_timeline_csv(timelines, timeline);
  CHECK(std::ranges::count(timeline.str(), '\n') == 1 + 7);
  CHECK_THAT(timeline.str(), ContainsSubstring("\n3,4.000000,0,training,FORWARD a,7340032,"
                                               "4194304,0,0,0,0,0,3145728,0,0,0,0,0,0,whole\n"));
  std::ostringstream largest;
  write_largest_csv(timelines, largest);
  CHECK(largest.str() ==
        "rank,bytes,category,label,step,action,recording\n"
        "3,4194304,parameter_shard,\"a \"\"b\"\", c\",-1,,whole\n"
        "3,3145728,activation,,0,FORWARD a,whole\n");
}
