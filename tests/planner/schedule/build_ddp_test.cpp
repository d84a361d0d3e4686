#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <stdexcept>

#include "planner/schedule/schedule.h"

using namespace shardlens;
using namespace shardlens::planner;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;

namespace {

Schedule tutorial(StrategyKind kind, int world_size, Pass pass = Pass::train) {
  Strategy strategy;
  strategy.kind = kind;
  strategy.world_size = world_size;
  return build_schedule(models::find_spec("vit-tutorial"), strategy, pass);
}

int count(const Schedule& schedule, ActionKind kind) {
  return static_cast<int>(std::count_if(schedule.actions.begin(), schedule.actions.end(),
                                        [&](const Action& action) { return action.kind == kind; }));
}

// 4 buckets in each of 10 blocks, 1 in the head, 1 in the embedding.
constexpr int kBuckets = 42;

}  // namespace

TEST_CASE("ddp reduces each bucket in place and never gathers") {
  const Schedule schedule = tutorial(StrategyKind::ddp, 3);
  CHECK(schedule.shards == 1);
  CHECK(count(schedule, ActionKind::forward) == 22);
  CHECK(count(schedule, ActionKind::all_reduce) == kBuckets);
  CHECK(count(schedule, ActionKind::optimizer_step) == kBuckets);
  CHECK(count(schedule, ActionKind::all_gather) == 0);
  CHECK(count(schedule, ActionKind::reshard) == 0);
  REQUIRE(schedule.slots.size() == 2);
  for (const Slot& slot : schedule.slots) CHECK(slot.kind == SlotKind::reduce);
  for (const Action& action : schedule.actions) {
    if (action.kind != ActionKind::all_reduce) continue;
    CHECK(action.reads == action.writes);
    CHECK(action.stream == Stream::reduce);
    CHECK(action.waits.size() == 1);
  }
}

TEST_CASE("single is ddp without its reductions") {
  Schedule ddp = tutorial(StrategyKind::ddp, 2);
  const Schedule single = tutorial(StrategyKind::single, 1);
  std::erase_if(ddp.actions,
                [](const Action& action) { return action.kind == ActionKind::all_reduce; });
  for (Action& action : ddp.actions) action.waits.clear();
  CHECK(single.actions == ddp.actions);
  CHECK(single.slots == ddp.slots);
  CHECK(single.groups == ddp.groups);
}

TEST_CASE("the evaluation of whole parameters needs no slot") {
  for (const StrategyKind kind : {StrategyKind::ddp, StrategyKind::single}) {
    const Schedule schedule = tutorial(kind, 1, Pass::evaluate);
    CHECK(schedule.slots.empty());
    CHECK(schedule.actions.size() == 1 + 22 + 1);
    CHECK(schedule.actions.back().kind == ActionKind::loss);
  }
}

TEST_CASE("ddp and single cast their parameters group by group if they compute in bf16") {
  for (const StrategyKind kind : {StrategyKind::ddp, StrategyKind::single}) {
    Strategy strategy{.kind = kind, .world_size = kind == StrategyKind::ddp ? 2 : 1};
    strategy.param_dtype = DType::bf16;
    const Schedule schedule =
        build_schedule(models::find_spec("vit-tutorial"), strategy, Pass::train);
    CHECK(schedule.shards == 1);
    CHECK(count(schedule, ActionKind::all_gather) == 0);
    CHECK(count(schedule, ActionKind::cast_shard) == count(schedule, ActionKind::reshard));
    CHECK(count(schedule, ActionKind::all_reduce) == (kind == StrategyKind::ddp ? kBuckets : 0));
    for (const Action& action : schedule.actions) {
      if (action.kind == ActionKind::forward) CHECK(action.reads.size() == 1);
    }
  }
}

TEST_CASE("the input's bytes are the batch's images and labels") {
  Strategy strategy;
  strategy.kind = StrategyKind::ddp;
  strategy.batch = 5;
  const Schedule schedule =
      build_schedule(models::find_spec("vit-tutorial"), strategy, Pass::train);
  REQUIRE(schedule.actions[0].kind == ActionKind::load_input);
  CHECK(schedule.actions[0].bytes == 5 * (28 * 28 * 4 + 8));
}

TEST_CASE("single refuses several ranks, and no strategy takes zero") {
  CHECK_THROWS_MATCHES(tutorial(StrategyKind::single, 2), std::invalid_argument,
                       MessageMatches(ContainsSubstring("choose ddp or fsdp")));
  for (const StrategyKind kind : {StrategyKind::single, StrategyKind::ddp, StrategyKind::fsdp}) {
    CHECK_THROWS_AS(tutorial(kind, 0), std::invalid_argument);
    CHECK_THROWS_AS(tutorial(kind, -1), std::invalid_argument);
  }
}
