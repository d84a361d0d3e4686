// A lane says the same as `profile report`, which follows the recording independently; a lane of
// segments says what a plain allocator and PyTorch's own snapshots hold.

#include <algorithm>
#include <catch2/catch_get_random_seed.hpp>
#include <catch2/catch_test_macros.hpp>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "profiler/exchange/import_memory_viz.h"
#include "profiler/report/block_tracker.h"
#include "profiler/report/report.h"
#include "tests/support/model_allocator.h"
#include "tests/support/recordings/random_recording.h"
#include "tests/support/recordings/synthetic_profile.h"
#include "tests/support/recordings/view_recording.h"
#include "viewer/model/lane_builder.h"
#include "viewer/scene/panels/block_facts.h"

namespace shardlens::viewer {
namespace {

using profiler::Event;
using profiler::EventKind;
using profiler::Space;

int64_t bytes_of(const Lane& lane, const std::vector<uint32_t>& blocks) {
  int64_t bytes = 0;
  for (const uint32_t block : blocks) bytes += lane.arrays().blocks[block].given_bytes;
  return bytes;
}

void check_like_report(const profiler::Profile& profile) {
  const profiler::RankReport report = profiler::analyse(profile);
  const Lane lane = lane_of(profile);
  CHECK(lane.peak().max_bytes == report.peak_bytes());
  CHECK(lane.info().events == report.events);
  const auto& space = report.spaces[static_cast<size_t>(lane.info().space)];
  if (!space) return;
  CHECK(lane.peak().at_max == space->given);
  CHECK(lane.time_of(lane.peak().max_change) == space->peak_at.time_ns);
  CHECK(lane.alive_after(lane.peak().max_change).size() == space->tensors.size());
  CHECK(lane.pyramid().bytes_after(lane.changes() - 1) == space->end_given);
  std::vector<profiler::StepPeak> steps;
  for (const Stretch& stretch : lane.arrays().stretches) {
    if (stretch.number < 0) continue;
    steps.push_back({.step = stretch.number});
    steps.back().bytes[static_cast<size_t>(lane.info().space)] = stretch.peak_bytes;
  }
  REQUIRE(steps.size() == report.steps.size());
  for (size_t i = 0; i < steps.size(); ++i) {
    CHECK(steps[i].step == report.steps[i].step);
    CHECK(steps[i].bytes[static_cast<size_t>(lane.info().space)] ==
          report.steps[i].bytes[static_cast<size_t>(lane.info().space)]);
  }
  REQUIRE(lane.step_peak().has_value() == report.step_peak.has_value());
  if (lane.step_peak()) {
    CHECK(lane.step_peak()->max_bytes ==
          report.step_peak->bytes[static_cast<size_t>(lane.info().space)]);
  }
  if (const auto reserved = report.reserved_peak_bytes()) {
    CHECK(lane.reserved_between(0, static_cast<double>(lane.info().end_ns) + 1) == reserved);
  }
}

/// A run of an allocator. Each event's label is the number of the current allocation.
struct NumberedRun {
  profiler::Profile profile;
  std::vector<int64_t> reserved;  // after each event of a segment
};

NumberedRun numbered_run(uint64_t seed, bool expandable) {
  std::mt19937_64 engine(seed);
  NumberedRun run;
  run.profile.header.device = "cuda";
  run.profile.strings = {""};
  int64_t reserved = 0;
  tests::ModelAllocator model(expandable, [&](Event event) {
    event.time_ns = 10 * static_cast<int64_t>(run.profile.events.size() + 1);
    if (event.space == Space::segment) {
      reserved += event.kind == EventKind::alloc ? event.value : -event.value;
      run.reserved.push_back(reserved);
    }
    run.profile.events.push_back(event);
  });
  std::vector<uint64_t> live;
  for (int i = 0; i < 1500; ++i) {
    if (live.empty() || (live.size() < 60 && engine() % 2 == 0)) {
      run.profile.strings.push_back("call " + std::to_string(i));
      const auto label = static_cast<uint32_t>(run.profile.strings.size() - 1);
      const auto bytes = static_cast<int64_t>(1 + engine() % (uint64_t{1} << (1 + engine() % 25)));
      const auto stream = static_cast<uint16_t>(engine() % 2);
      live.push_back(model.alloc({.value = bytes, .label = label, .stream = stream}));
    } else {
      std::swap(live[engine() % live.size()], live.back());
      model.free(live.back());
      live.pop_back();
    }
    if (engine() % 100 == 0) model.empty_cache();
  }
  return run;
}

/// Checks what all segments together have handed out to tensors, and that none has handed out more
/// than its size.
void check_uses(const NumberedRun& run, const Lane& lane) {
  std::map<uint64_t, int64_t> live;
  int64_t given = 0;
  profiler::BlockTracker tracker;
  const auto& blocks = lane.arrays().blocks;
  for (size_t i = 0; i < run.profile.events.size(); ++i) {
    const Event& event = run.profile.events[i];
    const int64_t bytes = tracker.take(event);
    if (event.space != Space::device) continue;
    if (event.kind == EventKind::alloc) {
      given += live[event.address] = bytes;
    } else {
      given -= live[event.address];
    }
    if (i % 97 != 0) continue;
    int64_t used = 0;
    for (uint32_t block = 0; block < blocks.size(); ++block) {
      const int64_t here = lane.used_bytes(block, event.time_ns);
      CHECK(here >= 0);
      CHECK(here <= blocks[block].given_bytes);
      used += here;
    }
    CHECK(used == given);
  }
}

void check_segments(uint64_t seed, bool expandable) {
  CAPTURE(seed, expandable);
  const NumberedRun run = numbered_run(seed, expandable);
  const Lane lane = lane_of(run.profile, Space::segment);
  REQUIRE(lane.info().unmatched == 0);
  CHECK(lane.peak().max_bytes == std::ranges::max(run.reserved));
  const CategoryBytes end = lane.pyramid().bytes_after(lane.changes() - 1);
  CHECK(end[static_cast<size_t>(Category::other)] == run.reserved.back());
  // The allocation behind a segment made the allocator take it.
  std::map<uint64_t, std::string> taken;
  size_t explained = 0;
  const auto& events = run.profile.events;
  for (size_t i = 0; i + 1 < events.size(); ++i) {
    const bool is_taken = events[i].space == Space::segment && events[i].kind == EventKind::alloc;
    if (is_taken) taken[events[i].address] = run.profile.strings[events[i + 1].label];
  }
  for (const Block& block : lane.arrays().blocks) {
    const bool is_whole =
        taken.contains(block.address) && lane.label(block) == taken[block.address];
    explained += is_whole ? 1 : 0;
  }
  CHECK(explained >= taken.size());
  check_uses(run, lane);
}

}  // namespace

TEST_CASE("a lane's peaks, compositions and steps are the report's") {
  const auto seed = Catch::getSeed();
  CAPTURE(seed);
  for (uint64_t i = 0; i < 20; ++i) {
    CAPTURE(i);
    check_like_report(tests::RandomRecorder(seed + i, i % 2 == 0).record(2000).profile);
  }
  check_like_report(tests::synthetic_profile({.steps = 6, .layers = 4}));
  check_like_report(tests::view_recording());
}

TEST_CASE("live memory after any change adds up to the bands there") {
  const auto seed = Catch::getSeed();
  CAPTURE(seed);
  const Lane lane = lane_of(tests::synthetic_profile({.seed = seed, .steps = 120, .layers = 24}));
  REQUIRE(lane.changes() > 2 * kAliveEvery);
  std::mt19937_64 engine(seed);
  for (int i = 0; i < 60; ++i) {
    const auto change =
        static_cast<int64_t>(engine() % static_cast<uint64_t>(lane.changes() + 1)) - 1;
    const auto alive = lane.alive_after(change);
    CHECK(bytes_of(lane, alive) == sum_of(lane.pyramid().bytes_after(change)));
    CHECK(std::ranges::adjacent_find(alive, std::greater_equal{}) == alive.end());
  }
}

TEST_CASE("an action whose end was lost ends with its step") {
  const auto seed = Catch::getSeed();
  CAPTURE(seed);
  std::mt19937_64 engine(seed);
  profiler::Profile profile = tests::view_recording({.steps = 40});
  std::erase_if(profile.events, [&](const Event& event) {
    return event.kind == EventKind::action_end && engine() % 3 == 0;
  });
  const Lane lane = lane_of(profile);
  REQUIRE(lane.arrays().spans.size() > 1000);
  for (const Span& span : lane.arrays().spans) {
    const Stretch& stretch = lane.arrays().stretches[static_cast<size_t>(span.stretch)];
    CHECK(span.begin_ns >= stretch.begin_ns);
    CHECK(span.end_ns <= stretch.end_ns);
  }
}

TEST_CASE("a time shows the action that ran, a change shows its interval") {
  const Lane lane = lane_of(tests::view_recording({.steps = 2}));
  const auto& stretches = lane.arrays().stretches;
  REQUIRE(stretches.size() == 4);
  CHECK(stretches[0].phase == profiler::Phase::starting);
  CHECK(stretches[1].number == 0);
  CHECK(stretches[2].number == 1);
  CHECK(stretches[3].phase == profiler::Phase::ending);
  const Span& span = lane.arrays().spans[20];
  CHECK(lane.span_at(span.begin_ns) != nullptr);
  CHECK(lane.span_at(0) == nullptr);
  CHECK(lane.stretch_of_change(stretches[2].first_change) == &stretches[2]);
}

TEST_CASE("events that make no sense leave a lane that can be queried") {
  profiler::Profile profile;
  profile.header.device = "cuda";
  profile.events = {
      {.time_ns = 5, .address = 1, .value = 100, .kind = EventKind::alloc},
      {.time_ns = 3, .address = 1, .value = 200, .kind = EventKind::alloc},  // twice, back in time
      {.time_ns = 9, .address = 7, .kind = EventKind::free},                 // never allocated
      {.time_ns = 9, .address = 8, .kind = EventKind::recategorise},         // neither
      {.time_ns = 9, .value = -5, .kind = EventKind::step},
      {.time_ns = 9, .action = 4, .kind = EventKind::action_end},    // never begun
      {.time_ns = 9, .action = 3, .kind = EventKind::action_begin},  // never ended
      {.time_ns = 9, .value = 99, .kind = static_cast<EventKind>(77)},
  };
  const Lane lane = lane_of(profile);
  CHECK(lane.changes() == 3);
  CHECK(lane.info().unmatched >= 3);
  CHECK(lane.alive_after(2).size() == 1);
  CHECK(lane.time_of(2) == 5);
}

TEST_CASE("segments are what the allocator held, and named by the calls that took them") {
  const auto seed = Catch::getSeed();
  for (uint64_t i = 0; i < 10; ++i) {
    check_segments(seed + i, false);
    check_segments(seed + i, true);
  }
}

TEST_CASE("a part of an expandable segment that is unmapped leaves the rest") {
  profiler::Profile profile;
  profile.header.device = "cuda";
  const auto add = [&](int64_t time_ns, uint64_t address, int64_t bytes, EventKind kind) {
    profile.events.push_back({.time_ns = time_ns,
                              .address = address,
                              .value = bytes,
                              .label = 1,
                              .kind = kind,
                              .space = Space::segment});
  };
  profile.strings = {"", "expandable segment"};
  add(1, 1000, 100, EventKind::alloc);
  add(2, 1100, 100, EventKind::alloc);
  add(3, 1050, 100, EventKind::free);  // the end of one and the beginning of the other
  add(4, 5000, 10, EventKind::free);   // nothing is mapped
  const Lane lane = lane_of(profile, Space::segment);
  int64_t bytes = 0;
  for (const uint32_t index : lane.alive_after(lane.changes() - 1)) {
    const Block& block = lane.arrays().blocks[index];
    bytes += block.given_bytes;
    CHECK((block.address == 1000 || block.address == 1150));
    CHECK(block.given_bytes == 50);
    CHECK(lane.label(block).empty());  // "expandable segment" is not a call
  }
  CHECK(bytes == 100);
  CHECK(lane.peak().max_bytes == 200);
  CHECK(lane.info().unmatched == 1);
}

TEST_CASE("the segments of PyTorch's own snapshot have the calls that took them") {
  const profiler::Profile profile = profiler::import_memory_viz_file(
      SHARDLENS_SOURCE_DIR "/tests/fixtures/memory_viz/whole.pickle");
  const Lane lane = lane_of(profile, Space::segment);
  CHECK(lane.peak().max_bytes == 257'949'696);  // PyTorch's own counter
  REQUIRE(lane.arrays().blocks.size() == 7);
  size_t named = 0;
  size_t at = 0;
  for (size_t i = 0; i + 1 < profile.events.size(); ++i) {
    const bool is_taken =
        profile.events[i].space == Space::segment && profile.events[i].kind == EventKind::alloc;
    if (!is_taken) continue;
    const Block& block = lane.arrays().blocks[at++];
    CHECK(lane.label(block) == profile.strings[profile.events[i + 1].label]);
    named += lane.label(block).empty() ? 0 : 1;
  }
  // Its only failed request: PyTorch's trace has it after 106 of the others.
  REQUIRE(lane.arrays().failures.size() == 1);
  CHECK(lane.arrays().failures[0].asked_bytes > 0);
  CHECK(at == 7);
  CHECK(named == 5);  // the other two calls had no frames of Python, nor names
}

TEST_CASE("a snapshot says who freed a block") {
  const std::string frames = R"("frames":[{"filename":"/p/train.py","line":)";
  const auto call = [&](int line, const std::string& name) {
    return frames + std::to_string(line) + R"(,"name":")" + name + R"("}])";
  };
  const std::string entry = R"("addr":4096,"size":1024,"stream":0,)";
  const std::string text =
      R"({"segments":[],"device_traces":[[)"
      R"({"action":"alloc","time_us":5,)" +
      entry + call(10, "forward") + "}," + R"({"action":"free_requested","time_us":6,)" + entry +
      call(20, "step") + "}," + R"({"action":"free_completed","time_us":7,)" + entry +
      call(20, "step") + "}," + R"({"action":"alloc","time_us":8,)" + entry + call(11, "forward") +
      "}," + R"({"action":"free_completed","time_us":9,)" + entry + call(11, "forward") + "}]]}";
  RankLane rank{
      .path = "", .lane = lane_of(profiler::import_memory_viz(text)), .names = {}, .stamp = {}};
  REQUIRE(rank.lane.arrays().blocks.size() == 2);
  const BlockFacts facts = block_facts(rank, 0);
  REQUIRE(facts.free_stack.size() == 1);
  CHECK(facts.free_stack[0].line == 20);
  REQUIRE(facts.stack.size() == 1);
  CHECK(facts.stack[0].line == 10);
  const std::string all = facts_text(facts);
  CAPTURE(all);
  CHECK(all.find("freed by  /p/train.py:20 step") != std::string::npos);
  CHECK(all.find("stack of the free") != std::string::npos);
  CHECK(block_facts(rank, 1).free_stack.empty());  // it is the stack of the allocation
}

}  // namespace shardlens::viewer
