#include "viewer/model/compare.h"

#include <algorithm>
#include <catch2/catch_get_random_seed.hpp>
#include <catch2/catch_test_macros.hpp>
#include <functional>

#include "tests/support/recordings/failing_recording.h"
#include "tests/support/recordings/synthetic_profile.h"
#include "tests/support/recordings/view_recording.h"
#include "viewer/model/lane_builder.h"
#include "viewer/model/warp.h"

namespace shardlens::viewer {
namespace {

int64_t sum(const std::vector<AliveRow>& rows) {
  int64_t bytes = 0;
  for (const AliveRow& row : rows) bytes += row.bytes;
  return bytes;
}

/// A recording at its peak.
struct Peak {
  explicit Peak(const tests::ViewRecordingOptions& options)
      : lane(lane_of(tests::view_recording(options))), names(lane.info().header) {}
  LaneMoment moment() const { return {&lane, &names, lane.peak().max_change}; }

  Lane lane;
  ActionNames names;
};

}  // namespace

TEST_CASE("a lane does not differ from itself, and differences have signs") {
  const Lane a = lane_of(tests::view_recording({.keep_weights = true}));
  const Lane b = lane_of(tests::view_recording({.activation_bytes = 5 << 20}));
  const ActionNames names(a.info().header);
  const Warp warp_a = warp_of(Alignment::step, {&a, &names}, {&a, &names});
  const Warp warp_b = warp_of(Alignment::step, {&b, &names}, {&a, &names});
  const Range beyond{-2, 5};
  const auto of_a = columns_of(warp_a, a, beyond, 333);
  const auto of_b = columns_of(warp_b, b, beyond, 333);
  const auto forth = difference(of_a, of_b);
  const auto back = difference(of_b, of_a);
  const auto self = difference(of_a, of_a);
  REQUIRE(forth.size() == 333);
  CHECK_FALSE(forth.front().has_value());
  int unequal = 0;
  for (size_t i = 0; i < forth.size(); ++i) {
    REQUIRE(forth[i].has_value() == back[i].has_value());
    if (!forth[i]) continue;
    CHECK(sum_of(*self[i]) == 0);
    CHECK(*self[i] == CategoryBytes{});
    for (size_t c = 0; c < kCategories; ++c) CHECK((*forth[i])[c] == -(*back[i])[c]);
    CHECK(sum_of(*forth[i]) == of_b[i]->max_bytes - of_a[i]->max_bytes);
    unequal += *forth[i] == CategoryBytes{} ? 0 : 1;
  }
  CHECK(unequal > 100);
}

TEST_CASE("live memory adds up to the total, however it is grouped") {
  const Lane lane = lane_of(tests::synthetic_profile({.steps = 4, .layers = 6}));
  const ActionNames names(lane.info().header);
  for (const int64_t change : {lane.peak().max_change, int64_t{40}, kBeforeAll}) {
    const int64_t total = sum_of(lane.pyramid().bytes_after(change));
    for (int i = 0; i < kGroupings; ++i) {
      const auto rows = alive_rows(lane, names, change, static_cast<Grouping>(i));
      CHECK(sum(rows) == total);
      for (size_t row = 1; row < rows.size(); ++row) CHECK(rows[row - 1].bytes >= rows[row].bytes);
    }
  }
  const auto by_category = alive_rows(lane, names, lane.peak().max_change, Grouping::category);
  for (const AliveRow& row : by_category) {
    CHECK(row.bytes == lane.peak().at_max[static_cast<size_t>(row.category)]);
  }
}

TEST_CASE("an allocation's age is counted in steps") {
  const Lane lane = lane_of(tests::view_recording({.steps = 3}));
  const ActionNames names(lane.info().header);
  const auto rows = alive_rows(lane, names, lane.step_peak()->max_change, Grouping::age);
  REQUIRE(rows.size() == 2);
  CHECK(rows[0].name == "since before the first step");
  CHECK(rows[1].name == "from this step");
}

TEST_CASE("only in A, in both and only in B add up to the two totals") {
  const Peak peak_a({.keep_weights = true});
  const Peak peak_b({.activation_bytes = 5 << 20});
  const Lane& a = peak_a.lane;
  const Lane& b = peak_b.lane;
  const LaneMoment at_a = peak_a.moment();
  const LaneMoment at_b = peak_b.moment();
  const profiler::Matching matching = match(at_a, at_b);
  int64_t total_a = 0;
  int64_t total_b = 0;
  CategoryBytes growth{};
  for (const profiler::MatchedPlace& row : matching.rows) {
    total_a += row.a_bytes;
    total_b += row.b_bytes;
    growth[static_cast<size_t>(row.category)] += row.growth_bytes();
  }
  CHECK(total_a == a.peak().max_bytes);
  CHECK(total_b == b.peak().max_bytes);
  CHECK(matching.in_both_bytes + matching.only_a_bytes == total_a);
  CHECK(matching.in_both_bytes + matching.only_b_bytes == total_b);
  CHECK(growth == difference(a.peak().at_max, b.peak().at_max));
  CHECK(match(at_a, at_a).only_b_bytes == 0);
  // Groups keep their parameters, so the largest change is what every layer has more.
  CHECK(matching.rows.front().layers > 1);
}

TEST_CASE("a place names a block of its category, on the side that has one") {
  const Peak peak_a({.keep_weights = true});
  const Peak peak_b({.activation_bytes = 5 << 20});
  const Lane& b = peak_b.lane;
  const LaneMoment at_a = peak_a.moment();
  const LaneMoment at_b = peak_b.moment();
  const auto check_block = [](const LaneMoment& moment, uint32_t block, const auto& row) {
    const auto& blocks = moment.lane->arrays().blocks;
    REQUIRE(block < blocks.size());
    CHECK(blocks[block].category == row.category);
    CHECK(blocks[block].is_alive_after(moment.change));
    // Layers only differ in their numbers.
    const std::string label(moment.lane->label(blocks[block]));
    const std::string before = row.name.substr(0, row.name.find_first_of("0123456789"));
    CHECK(label.starts_with(before));
  };
  for (const profiler::MatchedPlace& row : match(at_a, at_b).rows) {
    CAPTURE(row.name);
    CHECK((row.a_block == profiler::kNoHeldBlock) == (row.a_count == 0));
    CHECK((row.b_block == profiler::kNoHeldBlock) == (row.b_count == 0));
    if (row.a_count > 0) check_block(at_a, row.a_block, row);
    if (row.b_count > 0) check_block(at_b, row.b_block, row);
  }
  const profiler::Matching alone = places_of(at_b);
  CHECK(alone.only_b_bytes == b.peak().max_bytes);
  CHECK(alone.in_both_bytes == 0);
  CHECK(std::ranges::is_sorted(alone.rows, std::greater(), &profiler::MatchedPlace::b_bytes));
}

TEST_CASE("a change is said in words, with its sign") {
  CHECK(change_in_words(100, 100) == "the same");
  CHECK(change_in_words(2 << 20, 3 << 20) == "1.00 MiB more (+50.0 %)");
  CHECK(change_in_words(4 << 20, 3 << 20) == "1.00 MiB less (-25.0 %)");
  CHECK(change_in_words(0, 512) == "512 B more");
  CHECK(change_in_words(1000 << 20, 1001 << 20, 16 << 20) == "about the same");
  CHECK(change_in_words(1000 << 20, 1100 << 20, 16 << 20) == "100.00 MiB more (+10.0 %)");
}

TEST_CASE("two lines of an unchanged file are never paired") {
  const auto run = [](bool checkpoints) {
    profiler::Profile profile;
    profile.header.device = "null:h100";
    profile.strings = {"", "llama.py:164 forward", "llama.py:314 forward"};
    const auto allocate = [&](int count, int64_t bytes, uint32_t label) {
      for (int i = 0; i < count; ++i) {
        const auto order = static_cast<uint64_t>(profile.events.size());
        profile.events.push_back({.time_ns = static_cast<int64_t>(order),
                                  .address = 0x1000000 * (order + 1),
                                  .value = bytes,
                                  .label = label,
                                  .kind = profiler::EventKind::alloc,
                                  .category = Category::activation});
      }
    };
    checkpoints ? allocate(11, 8192, 2) : allocate(36, 8192, 1);
    return profile;
  };
  const Lane plain = lane_of(run(false));
  const Lane checkpointed = lane_of(run(true));
  const ActionNames names;
  const auto moment = [&](const Lane& lane) {
    return LaneMoment{&lane, &names, lane.peak().max_change};
  };
  const profiler::Matching matching = match(moment(plain), moment(checkpointed));
  REQUIRE(matching.rows.size() == 2);
  CHECK(matching.in_both_bytes == 0);
  CHECK(matching.rows[0].name == "llama.py:164 forward");
  CHECK(matching.rows[0].b_count == 0);
  CHECK(matching.rows[1].name == "llama.py:314 forward");
  CHECK(matching.rows[1].a_count == 0);
}

TEST_CASE("a line's blocks of two categories are two rows") {
  const Lane lane = lane_of(tests::failing_recording());
  const auto rows = alive_rows(lane, ActionNames(), lane.peak().max_change, Grouping::label);
  const auto count = std::ranges::count(rows, "model.py:10 build", &AliveRow::name);
  CHECK(count == 2);
  for (const AliveRow& row : rows) {
    if (row.name == "model.py:10 build") CHECK(row.bytes == 20 * tests::kFailingMiB);
  }
}

}  // namespace shardlens::viewer
