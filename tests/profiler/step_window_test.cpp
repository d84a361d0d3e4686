// Compares a recording of some steps with the whole one: it says the same about these steps.
#include "profiler/recorder/step_window.h"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <vector>

#include "profiler/report/report.h"
#include "tests/support/recordings/random_recording.h"
#include "tests/support/recordings/synthetic_profile.h"

using namespace shardlens;
using namespace shardlens::profiler;

namespace {

constexpr uint32_t kMapped = 1;  // as in random recordings

std::vector<Event> events_within(const std::vector<Event>& events, StepRange range) {
  std::vector<Event> written;
  StepWindow window(range, kMapped, [&](const Event& event) { written.push_back(event); });
  for (const Event& event : events) window.take(event);
  return written;
}

RankReport report_of(const Profile& profile, std::vector<Event> events) {
  Profile part;
  part.header = profile.header;
  part.strings = profile.strings;
  part.events = std::move(events);
  return analyse(part);
}

/// The whole recording up to the end of the window: the same events from the first step on.
std::vector<Event> events_until(const std::vector<Event>& events, StepRange range) {
  bool in_last = false;
  const auto ends = [&](const Event& event) {
    const bool is_step = event.kind == EventKind::step;
    if (in_last && (is_step || event.kind == EventKind::phase)) return true;
    in_last |= is_step && event.value + 1 == range.last;
    return false;
  };
  return {events.begin(), std::ranges::find_if(events, ends)};
}

std::vector<StepPeak> steps_in(const std::vector<StepPeak>& steps, StepRange range) {
  std::vector<StepPeak> found;
  for (const StepPeak& step : steps) {
    if (step.step + 1 >= range.first && step.step + 1 <= range.last) found.push_back(step);
  }
  return found;
}

void check_like_whole(const Profile& profile, StepRange range) {
  CAPTURE(range.first, range.last);
  const RankReport whole = report_of(profile, events_until(profile.events, range));
  const RankReport part = report_of(profile, events_within(profile.events, range));
  const std::vector<StepPeak> expected = steps_in(whole.steps, range);
  REQUIRE(part.steps.size() == expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    CHECK(part.steps[i].step == expected[i].step);
    CHECK(part.steps[i].bytes == expected[i].bytes);
  }
  CHECK(part.unmatched == 0);
  CHECK(part.blocks_at_end == whole.blocks_at_end);
  for (size_t space = 0; space < kSpaces; ++space) {
    if (!part.spaces[space]) {  // nothing is alive in this space, and nothing happens
      CHECK((!whole.spaces[space] || whole.spaces[space]->end_bytes == 0));
      continue;
    }
    REQUIRE(whole.spaces[space]);
    CHECK(part.spaces[space]->end_bytes == whole.spaces[space]->end_bytes);
    CHECK(part.spaces[space]->end_given == whole.spaces[space]->end_given);
  }
}

Event step(int64_t step) { return {.value = step, .kind = EventKind::step}; }

}  // namespace

TEST_CASE("some steps of a random recording are as in the whole") {
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    CAPTURE(seed);
    const auto recording = tests::random_recording(seed, seed % 2 == 0);
    for (const StepRange range : {StepRange{1, 5}, {2, 2}, {40, 60}, {7, 1000}}) {
      check_like_whole(recording.profile, range);
    }
  }
}

TEST_CASE("some steps of a synthetic training run have the peak and the live set of the whole") {
  const Profile profile = tests::synthetic_profile();
  const RankReport whole = analyse(profile);
  const RankReport part = report_of(profile, events_within(profile.events, {5, 9}));
  check_like_whole(profile, {5, 9});
  REQUIRE(part.steps.size() == 5);
  CHECK(part.steps.front().step == 4);
  REQUIRE(part.step_peak);  // all are steady: four ran before
  const int64_t highest = std::ranges::max(steps_in(whole.steps, {5, 9}), {}, [](const auto& step) {
                            return step.bytes[0];
                          }).bytes[0];
  CHECK(part.step_peak->bytes[0] == highest);
  CHECK(part.peak_bytes() == highest);
  CHECK(part.events < whole.events / 2);
}

TEST_CASE("the first two steps of a run are not steady in a part either") {
  const Profile profile = tests::synthetic_profile();
  const RankReport part = report_of(profile, events_within(profile.events, {2, 3}));
  REQUIRE(part.step_peak);
  CHECK(part.step_peak->step == 2);
  CHECK_FALSE(report_of(profile, events_within(profile.events, {1, 2})).step_peak);
}

TEST_CASE("counters have their last value when a recording begins") {
  const auto counter = [](Counter counter, int64_t value) {
    return Event{
        .address = static_cast<uint64_t>(counter), .value = value, .kind = EventKind::counter};
  };
  const RankReport part = report_of(
      {}, events_within(
              {counter(Counter::device_start, 70), counter(Counter::device_used, 500), step(0),
               counter(Counter::device_used, 100), step(1), counter(Counter::device_used, 90),
               step(2), counter(Counter::device_used, 1000)},
              {2, 2}));
  CHECK(part.ledger.context_bytes == 70);
  CHECK(part.ledger.device_used_bytes == 90);
  CHECK(part.counters[static_cast<size_t>(Counter::device_used)].last == 90);
}

TEST_CASE("running out of memory before the first step begins the recording") {
  const std::vector<Event> events = {
      {.address = 512, .value = 100, .category = Category::activation},
      {.value = static_cast<int64_t>(Phase::training), .kind = EventKind::phase},
      step(0),
      {.address = 1024, .value = 300, .category = Category::gradient},
      {.address = 7, .value = 9000, .kind = EventKind::out_of_memory}};
  const RankReport part = report_of({}, events_within(events, {5, 9}));
  REQUIRE(part.out_of_memory.size() == 1);
  CHECK(part.out_of_memory.front().at.step == 0);
  CHECK(part.out_of_memory.front().at.phase == Phase::training);
  CHECK(part.out_of_memory.front().tensors.size() == 2);
  CHECK(events_within({events.begin(), events.end() - 1}, {5, 9}).empty());
}
