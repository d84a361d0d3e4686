// Tests the next steps that a user is advised to take after a program was recorded.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <string>
#include <vector>

#include "profiler/record/next_steps.h"

using namespace shardlens;
using namespace shardlens::profiler;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::StartsWith;

namespace {

using profiler::Category;

constexpr int64_t kGiB = int64_t{1} << 30;

const RecordVerdict kRoomy{}, kNearly{.is_nearly_full = true}, kRetries{.exit_code = 4},
    kTooLarge{.exit_code = 3}, kNone{.exit_code = 5},
    kRanOut{.exit_code = 3, .is_out_of_memory = true};

/// A rank whose peak has 10 GiB of parameters and 30 GiB of a category, with 50 GiB reserved.
profiler::RankReport report_of(Category most, profiler::Phase phase = profiler::Phase::training) {
  profiler::Profile profile;
  profile.header.device = "null:h100";
  profile.header.world_size = 2;
  const auto allocate = [&](uint64_t gib_from, int64_t gib, Category category) {
    profile.events.push_back({.address = (100 + gib_from) << 30,
                              .value = gib * kGiB,
                              .kind = profiler::EventKind::alloc,
                              .category = category});
  };
  allocate(0, 50, Category::other);
  profile.events.back().space = profiler::Space::segment;
  profile.events.push_back(
      {.value = static_cast<int64_t>(phase), .kind = profiler::EventKind::phase});
  allocate(0, 10, Category::parameter_shard);
  allocate(10, 30, most);
  return profiler::analyse(profile);
}

}  // namespace

TEST_CASE("there is no advice to save memory if there is room, or no verdict") {
  CHECK(ways_to_take_less(report_of(Category::activation), kRoomy).empty());
  CHECK(ways_to_take_less(report_of(Category::activation), kNone).empty());
}

TEST_CASE("the advice is for the category that has the most") {
  const auto only_way = [](Category most, const RecordVerdict& verdict) {
    const auto ways = ways_to_take_less(report_of(most), verdict);
    REQUIRE(ways.size() == 1);
    return ways.front();
  };
  for (const RecordVerdict& verdict : {kNearly, kTooLarge}) {
    CHECK(
        only_way(Category::activation, verdict) ==
        "the largest part is activations, 30.00 GiB: activation checkpointing, a smaller batch or "
        "shorter sequences may take less");
    CHECK_THAT(only_way(Category::optimizer_state, verdict),
               StartsWith("the largest part is optimizer state, 30.00 GiB: sharding it"));
    CHECK_THAT(only_way(Category::gradient, verdict), StartsWith("the largest part is gradients"));
    CHECK_THAT(only_way(Category::parameter_shard, verdict),
               StartsWith("the largest part is parameters, 40.00 GiB: sharding them"));
  }
  CHECK(ways_to_take_less(report_of(Category::other), kNearly).empty());
}

TEST_CASE("parameters that are whole before they are sharded can be made elsewhere") {
  const auto ways =
      ways_to_take_less(report_of(Category::parameter_shard, profiler::Phase::starting), kNearly);
  REQUIRE(ways.size() == 1);
  CHECK_THAT(ways.front(),
             ContainsSubstring("before the first step") && ContainsSubstring("meta device"));
}

TEST_CASE("fragmented memory is named if it would suffice") {
  const auto ways = ways_to_take_less(report_of(Category::activation), kRetries);
  REQUIRE(ways.size() == 2);
  CHECK_THAT(ways[1], StartsWith("up to 50.00 GiB are reserved for up to 40.00 GiB") &&
                          ContainsSubstring("expandable_segments:True"));
  profiler::RankReport failed = report_of(Category::activation);
  profiler::OutOfMemory& last = failed.out_of_memory.emplace_back();
  last.given[static_cast<size_t>(Category::gradient)] = 20 * kGiB;
  last.asked_bytes = 5 * kGiB;
  last.blocks = {.requested = 20 * kGiB, .split = 4 * kGiB, .reserved = 24 * kGiB};
  REQUIRE(ways_to_take_less(failed, kRanOut).size() == 1);
  CHECK_THAT(ways_to_take_less(failed, kRanOut).front(),
             StartsWith("the largest part is gradients, 20.00 GiB"));
  last.asked_bytes = 4 * kGiB;
  REQUIRE(ways_to_take_less(failed, kRanOut).size() == 2);
  CHECK_THAT(ways_to_take_less(failed, kRanOut).back(),
             StartsWith("4.00 GiB were reserved but unused"));
}

TEST_CASE("a gate is advised if every recording can be compared, a view always") {
  const std::vector<profiler::RankReport> reports = {report_of(Category::activation),
                                                     report_of(Category::activation)};
  CHECK(next_steps("runs/a", reports, {kRoomy, kRoomy}) ==
        "\nnext\n  shardlens view runs/a: see in a window what was alive at any moment\n"
        "  shardlens gate runs/a AFTER --fail-above 2%: check whether a later recording, AFTER, "
        "takes more\n");
  CHECK_THAT(next_steps("a", reports, {kRoomy, kNearly}),
             ContainsSubstring("next\n  the largest part is activations"));
  for (const RecordVerdict& verdict : {kNone, kRanOut}) {
    std::vector<profiler::RankReport> failed = reports;
    failed[1].out_of_memory.emplace_back();
    const std::string text = next_steps("a", failed, {kRoomy, verdict});
    CHECK_THAT(text, ContainsSubstring("shardlens view a:"));
    CHECK_THAT(text, !ContainsSubstring("gate"));
  }
}
