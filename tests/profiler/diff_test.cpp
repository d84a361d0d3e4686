#include "profiler/compare/diff.h"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cmath>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <vector>

#include "tests/support/recordings/random_recording.h"
#include "tests/support/recordings/small_recording.h"

using namespace shardlens;
using namespace shardlens::profiler;
using Catch::Matchers::ContainsSubstring;
using tests::small_recording;

namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

RankReport small_report(int32_t rank = 0, int64_t activation_bytes = 3 * kMiB) {
  return analyse(small_recording(rank, activation_bytes));
}

}  // namespace

TEST_CASE("a diff says what grew, where and by how much") {
  const RunDiff diff = diff_runs({small_report()}, {small_report(0, 5 * kMiB)});
  CHECK(diff_text(diff) ==
        R"(rank 0: B's peak is 2.00 MiB above A's (+28.6 %): +2.00 MiB activation
                                    A            B         B - A
  peak                       7.00 MiB     9.00 MiB     +2.00 MiB
  reserved                  20.00 MiB    20.00 MiB           0 B
    parameter_shard          4.00 MiB     4.00 MiB           0 B
    activation               3.00 MiB     5.00 MiB     +2.00 MiB
  starting                   4.00 MiB     4.00 MiB           0 B
  training                   7.00 MiB     9.00 MiB     +2.00 MiB
  3 of 3 steps differ
  most in step 0             7.00 MiB     9.00 MiB     +2.00 MiB

  alive at the peaks: 7.00 MiB in both, 0 B only in A, 2.00 MiB only in B
      +2.00 MiB  activation          FORWARD a: 1 block, 3.00 MiB -> 1 block, 5.00 MiB
)");
}

TEST_CASE("a diff says with which levers each side was recorded") {
  auto changed = small_recording();
  changed.header.config = R"({"levers": {"recompute": "full"}})";
  const RunDiff diff = diff_runs({small_report()}, {analyse(changed)});
  CHECK_THAT(diff_text(diff), ContainsSubstring("\n  A was recorded as the program is\n"
                                                "  B was recorded with recompute=full\n"));
  CHECK(nlohmann::json::parse(diff_json(diff))["ranks"][0]["b_levers"] == "recompute=full");
}

TEST_CASE("a recording does not differ from itself") {
  const RankDiff diff = diff_ranks(small_report(), small_report());
  CHECK(diff.growth_percent() == 0);
  CHECK(diff.at_peak.in_both_bytes == 7 * kMiB);
  CHECK(diff.at_peak.only_a_bytes == 0);
  CHECK(diff.at_peak.only_b_bytes == 0);
  CHECK(verdict(diff) == "the peaks are equal, 7.00 MiB");
}

TEST_CASE("differences of two random recordings add up to the growth") {
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    CAPTURE(seed);
    const RankReport a = analyse(tests::random_recording(seed, false, 1500).profile);
    const RankReport b = analyse(tests::random_recording(seed + 100, false, 1500).profile);
    const RankDiff diff = diff_ranks(a, b);
    CHECK(diff.at_peak.in_both_bytes + diff.at_peak.only_a_bytes == diff.peak.a_bytes);
    CHECK(diff.at_peak.in_both_bytes + diff.at_peak.only_b_bytes == diff.peak.b_bytes);
    int64_t growth = 0;
    for (const Pair& pair : diff.categories) growth += pair.growth_bytes();
    CHECK(growth == diff.peak.growth_bytes());
    size_t common = 0;
    for (const StepPeak& step : a.steps) {
      common += std::ranges::any_of(b.steps, [&](auto& other) { return other.step == step.step; });
    }
    CHECK(diff.steps.size() == common);
  }
}

TEST_CASE("runs are compared rank by rank, the worst in full") {
  const std::vector<RankReport> a = {small_report(0), small_report(1), small_report(2)};
  const std::vector<RankReport> b = {small_report(1, 5 * kMiB), small_report(0), small_report(3)};
  const RunDiff diff = diff_runs(a, b);
  REQUIRE(diff.ranks.size() == 2);
  CHECK(diff.worst_pair().a.rank == 1);
  CHECK(diff.only_a == std::vector<int32_t>{2});
  CHECK(diff.only_b == std::vector<int32_t>{3});
  const std::string text = diff_text(diff);
  CHECK(text.starts_with("rank 1: B's peak is"));
  CHECK_THAT(text, ContainsSubstring("\nrank 0: the peaks are equal, 7.00 MiB\n"));
  CHECK_THROWS_AS(diff_runs({small_report(0), small_report(1)}, {small_report(2)}),
                  std::invalid_argument);
  // Two single files are two ranks to compare.
  CHECK(diff_text(diff_runs({small_report(0)}, {small_report(1)})).starts_with("ranks 0 and 1: "));
}

TEST_CASE("the diff as JSON has every pair, and no infinity") {
  const auto json =
      nlohmann::json::parse(diff_json(diff_runs({small_report()}, {small_report(0, 5 * kMiB)})));
  CHECK(json.at("schema") == "shardlens.profile_diff/2");
  const auto& rank = json.at("ranks").at(0);
  CHECK(rank.at("peak").at("growth_bytes") == 2 * kMiB);
  CHECK(rank.at("categories").at("activation").at("a_bytes") == 3 * kMiB);
  CHECK(rank.at("steps").size() == 3);
  const auto& comparison = rank.at("comparison");
  CHECK(comparison.at("in_both_bytes") == 7 * kMiB);
  CHECK(comparison.at("only_a_bytes") == 0);
  CHECK(comparison.at("only_b_bytes") == 2 * kMiB);
  REQUIRE(comparison.at("rows").size() == 1);
  CHECK(comparison.at("rows").at(0).at("place") == "FORWARD a");
  CHECK(comparison.at("rows").at(0).at("change_bytes") == 2 * kMiB);
  const RunDiff grown = diff_runs({analyse(Profile{})}, {small_report()});
  CHECK(std::isinf(grown.worst_pair().growth_percent()));
  CHECK(nlohmann::json::parse(diff_json(grown)).at("ranks").at(0).at("growth_percent").is_null());
}
