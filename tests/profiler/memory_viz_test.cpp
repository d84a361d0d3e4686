// Exported snapshots are read back by our reader, and by Python and PyTorch by hand; imports are
// compared with what PyTorch's own counters said when the fixtures were made.

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <sstream>
#include <string>

#include "base/document/read_document.h"
#include "profiler/exchange/event_source.h"
#include "profiler/exchange/export_memory_viz.h"
#include "profiler/exchange/import_memory_viz.h"
#include "profiler/exchange/lifetimes.h"
#include "profiler/exchange/timeline.h"
#include "profiler/recording/events.h"
#include "profiler/report/block_tracker.h"
#include "tests/support/gzip_file.h"
#include "tests/support/recordings/random_recording.h"
#include "tests/support/recordings/small_recording.h"
#include "tests/support/recordings/synthetic_profile.h"
#include "tests/support/temporary_folder.h"

namespace {

using namespace shardlens;
using namespace shardlens::profiler;
using Catch::Matchers::ContainsSubstring;
using nlohmann::json;

const std::string kFixtures = SHARDLENS_SOURCE_DIR "/tests/fixtures/memory_viz/";

std::string exported(const Profile& profile, bool as_pickle) {
  std::ostringstream out;
  const auto writer = as_pickle ? pickle_writer(out) : json_writer(out);
  export_memory_viz(profile, *writer);
  return out.str();
}

/// A recording's bytes during a replay: what they are now, and the most they were.
struct Replay {
  explicit Replay(const Profile& profile) {
    for (const Event& event : profile.events) {
      tracker.take(event);
      peak_allocated = std::max(peak_allocated, tracker.totals().allocated());
      peak_reserved = std::max(peak_reserved, tracker.totals().reserved);
    }
  }
  BlockTracker tracker;
  int64_t peak_allocated = 0;
  int64_t peak_reserved = 0;
};

/// An event without what a snapshot cannot say. Streams are numbered in order of appearance.
struct PlainEvent {
  uint64_t address;
  int64_t value;
  std::string label;
  uint16_t stream;
  EventKind kind;
  Space space;
  Category category;
  int64_t time_us;
  auto operator<=>(const PlainEvent&) const = default;
};

std::vector<PlainEvent> plain_events(const Profile& profile, Space space) {
  std::vector<PlainEvent> plain;
  const Lifetimes lives = lifetimes_of(profile, Space::device);
  auto change = lives.changes.begin();
  for (size_t i = 0; i < profile.events.size(); ++i) {
    const Event& event = profile.events[i];
    if (space == Space::segment && event.space == space && is_memory(event)) {
      plain.push_back({event.address, event.value, event.label != 0 ? "mapped" : "", event.stream,
                       event.kind, space, Category::other, event.time_ns / 1000});
    }
    for (; change != lives.changes.end() && change->event == i; ++change) {
      const Lifetime& life = lives.lives[change->life];
      const Event& begun = profile.events[life.begin];
      if (space != Space::device) continue;
      plain.push_back({begun.address, begun.value, profile.strings[begun.label], begun.stream,
                       change->begins ? EventKind::alloc : EventKind::free, space, life.category,
                       event.time_ns / 1000});
    }
  }
  const int64_t first_us = plain.empty() ? 0 : plain.front().time_us;
  std::map<uint16_t, uint16_t> streams = {{0, 0}};
  for (PlainEvent& one : plain) {
    one.time_us -= first_us;
    one.stream = streams.try_emplace(one.stream, streams.size()).first->second;
  }
  return plain;
}

void check_round_trip(const Profile& profile) {
  const std::string pickle = exported(profile, true);
  const json parsed = json::parse(exported(profile, false));
  CHECK(parsed.size() == 5);
  CHECK(parsed["shardlens_judgement"] == judgement_text(profile.judgement));
  const Profile back = import_memory_viz(pickle);
  const Profile from_json = import_memory_viz(exported(profile, false));
  CHECK(from_json.events == back.events);
  CHECK(from_json.strings == back.strings);
  for (const Space space : {Space::device, Space::segment}) {
    const std::vector<PlainEvent> expected = plain_events(profile, space);
    const std::vector<PlainEvent> found = plain_events(back, space);
    CHECK(found.size() == expected.size());
    const auto [wrong, right] = std::ranges::mismatch(found, expected);
    INFO("event " << wrong - found.begin());
    const bool equal = wrong == found.end() && right == expected.end();
    CHECK(equal);
  }
  CHECK(Replay(back).peak_allocated == Replay(profile).peak_allocated);
  CHECK(Replay(back).peak_reserved == Replay(profile).peak_reserved);
}

/// Checks a snapshot's segments: blocks fill each without a gap, and their sums are as stated.
BlockTotals totals_of_segments(const json& snapshot) {
  BlockTotals totals;
  for (const json& segment : snapshot.at("segments")) {
    int64_t at = segment.at("address");
    int64_t allocated = 0;
    for (const json& block : segment.at("blocks")) {
      CHECK(block.at("address") == at);
      const int64_t size = block.at("size");
      at += size;
      if (block.at("state") == "inactive") continue;
      const int64_t requested = block.at("requested_size");
      totals.requested += requested;
      totals.rounding += size - requested;
      allocated += size;
    }
    const int64_t total = segment.at("total_size");
    CHECK(at == segment.at("address").get<int64_t>() + total);
    CHECK(segment.at("allocated_size") == allocated);
    totals.reserved += total;
  }
  return totals;
}

/// The figures of PyTorch's own counters when the fixture was made.
void check_counters(const Profile& profile, const std::string& name) {
  const json expected = json::parse(tests::read_file(kFixtures + "expected.json")).at(name);
  const Replay replay(profile);
  const BlockTotals& totals = replay.tracker.totals();
  CHECK(totals.allocated() == expected.at("allocated_bytes"));
  CHECK(totals.requested == expected.at("requested_bytes"));
  CHECK(totals.reserved == expected.at("reserved_bytes"));
  CHECK(replay.peak_allocated == expected.at("peak_allocated_bytes"));
  CHECK(replay.peak_reserved == expected.at("peak_reserved_bytes"));
}

}  // namespace

TEST_CASE("a recording exported and imported is the same, in pickle and in JSON") {
  check_round_trip(tests::small_recording());
  check_round_trip(tests::synthetic_profile({.steps = 3, .layers = 4}));
}

TEST_CASE("random recordings survive export and import, with segments of every kind") {
  const uint64_t seed = std::random_device{}();
  for (const bool expandable : {false, true}) {
    INFO("seed " << seed << ", expandable " << expandable);
    const Profile profile = tests::RandomRecorder(seed, expandable).record(3000).profile;
    check_round_trip(profile);
    const json snapshot = json::parse(exported(profile, false));
    const BlockTotals found = totals_of_segments(snapshot);
    const BlockTotals expected = Replay(profile).tracker.totals();
    CHECK(found.requested == expected.requested);
    CHECK(found.rounding == expected.rounding);
    CHECK(found.reserved == expected.reserved);
  }
}

TEST_CASE("entries carry our words, and a category that the viewer needs") {
  const json snapshot = json::parse(exported(tests::small_recording(), false));
  const json& trace = snapshot.at("device_traces").at(0);
  std::map<std::string, int> actions;
  std::set<std::string> categories;
  for (const json& entry : trace) {
    ++actions[entry.at("action")];
    categories.insert(entry.at("category"));
  }
  CHECK(actions == std::map<std::string, int>{{"alloc", 4},
                                              {"free_completed", 3},
                                              {"free_requested", 3},
                                              {"segment_alloc", 1},
                                              {"snapshot", 1}});
  CHECK(categories == std::set<std::string>{"activation", "parameter_shard", "unknown"});
  const json& activation = trace.at(2);
  CHECK(activation.at("user_metadata") == "activation ");
  CHECK(activation.at("frames") ==
        json::array({{{"filename", "step 0, FORWARD a"}, {"line", 0}, {"name", ""}}}));
  CHECK(trace.at(1).at("frames").at(0) ==
        json{{"filename", "starting"}, {"line", -1}, {"name", "mlp0.weight"}});
}

TEST_CASE("a category declared later applies from the allocation on in a snapshot") {
  Profile profile;
  profile.events = {
      {.address = 512, .value = 8, .category = Category::activation},
      {.address = 512, .kind = EventKind::recategorise, .category = Category::gradient},
      {.address = 512, .kind = EventKind::free},
      {.address = 512, .value = 16, .category = Category::input}};
  const json trace = json::parse(exported(profile, false)).at("device_traces").at(0);
  CHECK(trace.at(0).at("category") == "gradient");
  CHECK(trace.at(3).at("category") == "input");
}

TEST_CASE("labels that are not UTF-8 and addresses that are freed twice are exported") {
  Profile profile;
  profile.strings = {"", "\xff\xfe"};
  profile.events = {{.address = 512, .value = 8, .label = 1},
                    {.address = 512, .kind = EventKind::free},
                    {.address = 512, .kind = EventKind::free},
                    {.address = 512, .value = 1, .label = 7},
                    {.address = 512, .value = 2}};
  const json trace = json::parse(exported(profile, false)).at("device_traces").at(0);
  CHECK(trace.size() == 8);
  CHECK(trace.at(0).at("frames").at(0).at("name") == "\xef\xbf\xbd\xef\xbf\xbd");
  CHECK(trace.at(3).at("frames").at(0).at("name") == "string 7");
  CHECK_NOTHROW(import_memory_viz(exported(profile, true)));
}

TEST_CASE("a recording of the CPU contains nothing for memory_viz") {
  Profile profile;
  profile.events = {{.address = 512, .value = 8, .space = Space::host}};
  CHECK_THROWS_WITH(exported(profile, true), ContainsSubstring("export a recording of the CPU as"));
}

TEST_CASE("PyTorch's own snapshot is imported to the byte") {
  for (const std::string name : {"whole", "late"}) {
    INFO(name);
    const Profile profile = import_memory_viz(tests::read_file(kFixtures + name + ".pickle"));
    check_counters(profile, name);
    const auto failures =
        std::ranges::count(profile.events, EventKind::out_of_memory, &Event::kind);
    CHECK(failures == 1);
    CHECK(std::ranges::any_of(profile.strings, [](const std::string& label) {
      return label.starts_with("torch/nn/modules/linear.py:") && label.ends_with(" forward");
    }));
    check_round_trip(profile);
  }
}

TEST_CASE("a step of PyTorch FSDP2 is imported to the byte") {
  const Profile profile = import_memory_viz(tests::read_gzip_file(kFixtures + "fsdp2.pickle.gz"));
  check_counters(profile, "fsdp2");
  CHECK(std::ranges::any_of(profile.strings, [](const std::string& label) {
    return label.starts_with("torch/distributed/fsdp/_fully_shard/_fsdp_param.py:") &&
           label.ends_with(" alloc_storage");
  }));
  check_round_trip(profile);
}

TEST_CASE("a snapshot without history has live memory only, all from the start") {
  const std::string text =
      R"({"segments":[{"device":1,"address":4096,"total_size":2097152,"stream":7,
          "segment_type":"small","blocks":[
            {"size":1024,"requested_size":1000,"state":"active_allocated"},
            {"size":512,"state":"inactive"},
            {"size":512,"requested_size":5,"state":"active_allocated"}]}],
          "device_traces":[[],[]]})";
  const Profile profile = import_memory_viz(text);
  REQUIRE(profile.events.size() == 5);
  CHECK(profile.events[1] == Event{.address = 4096, .value = 1024, .kind = EventKind::hold});
  CHECK(profile.events[2] == Event{.address = 4096, .value = 1000, .stream = 1});
  CHECK(profile.events[3] == Event{.address = 4096 + 1536, .value = 512, .kind = EventKind::hold});
  CHECK(profile.events[4] == Event{.address = 4096 + 1536, .value = 5, .stream = 1});
}

TEST_CASE("a file that is not a snapshot, or has several devices, is refused with a way out") {
  const auto check = [](const std::string& text, const std::string& what) {
    CHECK_THROWS_WITH(import_memory_viz(text), ContainsSubstring(what));
  };
  check("{}", "it is not a memory snapshot");
  check("nonsense", "byte 0: no pickle");
  check("", "cut off");
  check(R"({"segments":[],"device_traces":[]})", "_record_memory_history");
  check(R"({"device_traces":[[{"action":"alloc","size":1}],[{"action":"alloc","size":1}]]})",
        "the devices 0, 1; choose one with --device");
  check(R"({"device_traces":[[{"action":"alloc","size":-5}]]})", "a size of -5 bytes");
}

TEST_CASE("a snapshot cut off at any byte is refused") {
  const std::string whole = exported(tests::small_recording(), true);
  for (size_t size = 0; size < whole.size(); ++size) {
    CHECK_THROWS_AS(import_memory_viz(whole.substr(0, size)), std::invalid_argument);
  }
  const std::string fixture = tests::read_file(kFixtures + "whole.pickle");
  for (size_t size = 0; size < fixture.size(); size += size < 4096 ? 1 : 37) {
    CHECK_THROWS_AS(import_memory_viz(std::string_view(fixture).substr(0, size)),
                    std::invalid_argument);
  }
}

TEST_CASE("files with flipped bits are read as something or refused") {
  const uint64_t seed = std::random_device{}();
  INFO("seed " << seed);
  std::mt19937_64 engine(seed);
  const std::string ours = exported(tests::small_recording(), true);
  const std::string theirs = tests::read_file(kFixtures + "whole.pickle");
  int refused = 0;
  for (int i = 0; i < 10'000; ++i) {
    std::string damaged = i % 10 == 0 ? theirs : ours;
    damaged[engine() % damaged.size()] ^= static_cast<char>(1 << engine() % 8);
    try {
      const Profile profile = import_memory_viz(damaged);
      const Replay replay(profile);
      if (main_space_of(events_of(profile)) == Space::device) exported(profile, true);
    } catch (const std::invalid_argument&) {
      ++refused;
    }
  }
  CHECK(refused > 0);
  CHECK(refused < 10'000);
}
