#include "viewer/model/warp.h"

#include <algorithm>
#include <catch2/catch_approx.hpp>
#include <catch2/catch_get_random_seed.hpp>
#include <catch2/catch_test_macros.hpp>
#include <random>

#include "tests/support/recordings/failing_recording.h"
#include "tests/support/recordings/view_recording.h"
#include "viewer/model/lane_builder.h"

namespace shardlens::viewer {
namespace {

struct OpenedLane {
  explicit OpenedLane(const tests::ViewRecordingOptions& options)
      : lane(lane_of(tests::view_recording(options))), names(lane.info().header) {}
  NamedLane to_align() const { return {&lane, &names}; }

  Lane lane;
  ActionNames names;
};

const Alignment kAll[] = {Alignment::time, Alignment::step, Alignment::phase, Alignment::event,
                          Alignment::normalised};

/// Two strategies of one model whose steps take different times in different places.
const OpenedLane& fast() {
  static const OpenedLane opened({.keep_weights = true});
  return opened;
}
const OpenedLane& slow() {
  static const OpenedLane opened({.forward_ns = 11'000'000, .backward_ns = 13'000'000});
  return opened;
}

/// The start of a step's first action of a kind and unit.
int64_t begin_of(const OpenedLane& opened, size_t step, PassPart part, const std::string& unit) {
  size_t stretch = 0;
  const auto& stretches = opened.lane.arrays().stretches;
  while (stretches[stretch].number != static_cast<int64_t>(step)) ++stretch;
  for (const Span& span : opened.lane.arrays().spans) {
    if (span.stretch != static_cast<int64_t>(stretch)) continue;
    const ActionName name = opened.names.name_of(profiler::Phase::training, span.action);
    if (name.part == part && name.unit == unit) return span.begin_ns;
  }
  return -1;
}

}  // namespace

TEST_CASE("every warp is monotone, and back and forth is the identity") {
  const auto seed = Catch::getSeed();
  CAPTURE(seed);
  std::mt19937_64 engine(seed);
  std::uniform_real_distribution<double> uniform(0, 1);
  for (const Alignment alignment : kAll) {
    CAPTURE(to_string(alignment));
    const Warp warp = warp_of(alignment, slow().to_align(), fast().to_align());
    const Range extent = warp.extent();
    double last = -1;
    for (int i = 0; i <= 1000; ++i) {
      const auto position = warp.position_at(extent.begin + extent.length() * i / 1000);
      REQUIRE(position.has_value());
      CHECK(*position >= last);
      last = *position;
    }
    for (int i = 0; i < 200; ++i) {
      const double x = extent.begin + extent.length() * uniform(engine);
      CHECK(warp.x_of(*warp.position_at(x)) == Catch::Approx(x).margin(1e-6));
    }
    CHECK_FALSE(warp.position_at(extent.end + 0.1).has_value());
    CHECK_FALSE(warp.position_at(extent.begin - 0.1).has_value());
  }
}

TEST_CASE("by phase, the same points of a step coincide") {
  const Warp a = warp_of(Alignment::phase, fast().to_align(), fast().to_align());
  const Warp b = warp_of(Alignment::phase, slow().to_align(), fast().to_align());
  const Warp steps = warp_of(Alignment::step, slow().to_align(), fast().to_align());
  for (const size_t step : {0, 2}) {
    for (const char* unit : {"attention0", "mlp5", "head"}) {
      for (const PassPart part : {PassPart::forward, PassPart::backward}) {
        const double there = a.x_of(static_cast<double>(begin_of(fast(), step, part, unit)));
        const auto here_ns = static_cast<double>(begin_of(slow(), step, part, unit));
        REQUIRE(here_ns > 0);
        CHECK(b.x_of(here_ns) == Catch::Approx(there).margin(1e-6));
      }
    }
    // Aligning by step does not do that.
    CHECK(std::abs(
              steps.x_of(static_cast<double>(begin_of(slow(), step, PassPart::backward, "head"))) -
              a.x_of(static_cast<double>(begin_of(fast(), step, PassPart::backward, "head")))) >
          0.01);
  }
}

TEST_CASE("by step, a step of every strategy has the same width") {
  for (const OpenedLane* opened : {&fast(), &slow()}) {
    const Warp warp = warp_of(Alignment::step, opened->to_align(), fast().to_align());
    CHECK(warp.extent().begin == -1);
    CHECK(warp.extent().end > 3);  // what follows the last step took less time than a step
    CHECK(warp.extent().end < 4);
    for (const Stretch& stretch : opened->lane.arrays().stretches) {
      if (stretch.number < 0) continue;
      CHECK(warp.x_of(static_cast<double>(stretch.begin_ns)) ==
            Catch::Approx(static_cast<double>(stretch.number)));
    }
  }
}

TEST_CASE("columns show recorded moments, and the highest of all is the peak") {
  for (const Alignment alignment : kAll) {
    CAPTURE(to_string(alignment));
    const Warp warp = warp_of(alignment, slow().to_align(), fast().to_align());
    for (const int count : {1, 7, 640}) {
      const auto columns = columns_of(warp, slow().lane, warp.extent(), count);
      int64_t highest = 0;
      for (const auto& column : columns) {
        REQUIRE(column.has_value());
        CHECK(sum_of(column->at_max) == column->max_bytes);
        CHECK(slow().lane.pyramid().bytes_after(column->max_change) == column->at_max);
        highest = std::max(highest, column->max_bytes);
      }
      CHECK(highest == slow().lane.peak().max_bytes);
    }
    const Range beyond{warp.extent().end + 1, warp.extent().end + 2};
    CHECK_FALSE(column_of(warp, slow().lane, beyond).has_value());
  }
}

TEST_CASE("the state at the x of a change is the state after the change") {
  const Warp warp = warp_of(Alignment::phase, slow().to_align(), fast().to_align());
  const int64_t peak = slow().lane.peak().max_change;
  const auto change = change_at(warp, slow().lane, x_of_change(warp, slow().lane, peak) + 1e-9);
  REQUIRE(change.has_value());
  CHECK(slow().lane.time_of(*change) == slow().lane.time_of(peak));
}

TEST_CASE("a recording without steps or schedule is a single piece") {
  profiler::Profile profile;
  profile.header.device = "cpu";
  for (int i = 0; i < 9; ++i) {
    profile.events.push_back({.time_ns = 10 * i,
                              .address = static_cast<uint64_t>(i + 1),
                              .value = 5,
                              .kind = profiler::EventKind::alloc,
                              .space = profiler::Space::host});
  }
  const Lane lane = lane_of(profile);
  const ActionNames names(lane.info().header);
  for (const Alignment alignment : kAll) {
    const Warp warp = warp_of(alignment, {&lane, &names}, {&lane, &names});
    CHECK(column_of(warp, lane, warp.extent())->max_bytes == 45);
  }
}

TEST_CASE("a moment after the last step is not as long as a step") {
  const Lane lane = lane_of(tests::failing_recording());
  const ActionNames names;
  const Warp warp = warp_of(Alignment::step, {&lane, &names}, {&lane, &names});
  const auto& stretches = lane.arrays().stretches;
  const int64_t last = stretches.back().number;
  CHECK(warp.extent().end >= static_cast<double>(last) + 1);
  CHECK(warp.extent().end < static_cast<double>(last) + 1.1);
}

}  // namespace shardlens::viewer
