// A lane says the same as `profile report`, which follows the recording in a way of its own.

#include <algorithm>
#include <catch2/catch_get_random_seed.hpp>
#include <catch2/catch_test_macros.hpp>

#include "profiler/report/report.h"
#include "tests/support/recordings/random_recording.h"
#include "tests/support/recordings/synthetic_profile.h"
#include "tests/support/recordings/view_recording.h"
#include "viewer/model/lane_builder.h"

namespace shardlens::viewer {
namespace {

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
  CHECK(lane.pyramid().after(lane.changes() - 1) == space->end_given);
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

}  // namespace

TEST_CASE("a lane's peaks, compositions and steps are the report's") {
  const auto seed = Catch::getSeed();
  CAPTURE(seed);
  for (uint64_t i = 0; i < 20; ++i) {
    CAPTURE(i);
    check_like_report(test::RandomRecorder(seed + i, i % 2 == 0).record(2000).profile);
  }
  check_like_report(test::synthetic_profile({.steps = 6, .layers = 4}));
  check_like_report(test::view_recording());
}

TEST_CASE("what is alive after any change adds up to the bands there") {
  const auto seed = Catch::getSeed();
  CAPTURE(seed);
  const Lane lane = lane_of(test::synthetic_profile({.seed = seed, .steps = 120, .layers = 24}));
  REQUIRE(lane.changes() > 2 * kAliveEvery);
  std::mt19937_64 engine(seed);
  for (int i = 0; i < 60; ++i) {
    const auto change =
        static_cast<int64_t>(engine() % static_cast<uint64_t>(lane.changes() + 1)) - 1;
    const auto alive = lane.alive_after(change);
    CHECK(bytes_of(lane, alive) == sum_of(lane.pyramid().after(change)));
    CHECK(std::ranges::adjacent_find(alive, std::greater_equal{}) == alive.end());
  }
}

TEST_CASE("a time shows the action that ran and the stretch it was in") {
  const Lane lane = lane_of(test::view_recording({.steps = 2}));
  const auto& stretches = lane.arrays().stretches;
  REQUIRE(stretches.size() == 4);
  CHECK(stretches[0].phase == profiler::Phase::starting);
  CHECK(stretches[1].number == 0);
  CHECK(stretches[2].number == 1);
  CHECK(stretches[3].phase == profiler::Phase::ending);
  const Span& span = lane.arrays().spans[20];
  CHECK(lane.span_at(span.begin_ns) != nullptr);
  CHECK(lane.span_at(0) == nullptr);
  CHECK(lane.stretch_at(stretches[2].begin_ns) == &stretches[2]);
  CHECK(lane.stretch_of_change(stretches[2].first_change) == &stretches[2]);
}

TEST_CASE("events that make no sense leave a lane that can be asked") {
  profiler::Profile profile;
  profile.header.device = "cuda";
  using profiler::EventKind;
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

}  // namespace shardlens::viewer
