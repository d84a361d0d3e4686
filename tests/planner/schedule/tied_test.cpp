// Models whose head is tied to the embedding: one matrix, in one group, is used at both ends of a
// step.
#include <algorithm>
#include <catch2/catch_get_random_seed.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <random>

#include "models/families.h"
#include "planner/schedule/schedule.h"
#include "tests/support/random_vit.h"

using namespace shardlens;
using namespace shardlens::planner;

namespace {

models::ModelSpec random_llama(std::mt19937_64& engine) {
  models::LlamaSizes sizes;
  sizes.layers = tests::random_between(engine, 1, 6);
  sizes.kv_heads = tests::random_between(engine, 1, 3);
  sizes.heads = sizes.kv_heads * tests::random_between(engine, 1, 3);
  sizes.width = sizes.heads * 2 * tests::random_between(engine, 1, 12);
  sizes.mlp_width = tests::random_between(engine, 1, 130);
  sizes.vocab = tests::random_between(engine, 1, 900);
  sizes.tied = tests::random_between(engine, 0, 3) != 0;
  return models::make_spec("random", sizes);
}

models::ModelSpec tied(int64_t layers) {
  return models::make_spec("tied", models::LlamaSizes{.layers = layers,
                                                      .width = 64,
                                                      .heads = 4,
                                                      .kv_heads = 2,
                                                      .mlp_width = 96,
                                                      .vocab = 500,
                                                      .tied = true});
}

std::vector<int> actions_of(const Schedule& schedule, ActionKind kind, const std::string& group) {
  std::vector<int> found;
  for (size_t id = 0; id < schedule.actions.size(); ++id) {
    const Action& action = schedule.actions[id];
    if (action.kind != kind || schedule.groups[action.group].name != group) continue;
    found.push_back(static_cast<int>(id));
  }
  return found;
}

}  // namespace

TEST_CASE("random llamas, tied or not, have valid schedules") {
  const auto seed = Catch::getSeed();
  CAPTURE(seed);
  std::mt19937_64 engine(seed);
  for (int round = 0; round < 300; ++round) {
    const models::ModelSpec spec = random_llama(engine);
    const Strategy strategy = tests::random_strategy(engine);
    CAPTURE(round, spec.as<models::LlamaSizes>().layers, spec.as<models::LlamaSizes>().tied,
            strategy.kind, strategy.world_size);
    for (const Pass pass : {Pass::train, Pass::evaluate}) {
      const Schedule schedule = build_schedule(spec, strategy, pass);
      CHECK_NOTHROW(validate(schedule));
      CHECK(parse_schedule(to_text(schedule)) == schedule);
    }
  }
}

TEST_CASE("the tied matrix is reduced once, after both of its units") {
  const int64_t layers = GENERATE(1, 2, 7);
  const auto kind = GENERATE(StrategyKind::fsdp, StrategyKind::ddp);
  CAPTURE(layers, kind);
  const Schedule schedule =
      build_schedule(tied(layers), {.kind = kind, .world_size = 2}, Pass::train);
  const auto reduces =
      kind == StrategyKind::fsdp ? ActionKind::reduce_scatter : ActionKind::all_reduce;
  const auto backwards = actions_of(schedule, ActionKind::backward, "embed");
  const auto reductions = actions_of(schedule, reduces, "embed");
  REQUIRE(backwards.size() == 3);   // matrix and norm in the head, matrix in the embedding
  REQUIRE(reductions.size() == 2);  // norm, matrix
  CHECK(schedule.actions[backwards[0]].bucket == schedule.actions[backwards[2]].bucket);
  CHECK(backwards[0] < reductions[1]);
  CHECK(backwards[2] < reductions[1]);
}

TEST_CASE("a tied matrix that waits through backward has its own reduce slot") {
  const Schedule schedule =
      build_schedule(tied(3), {.kind = StrategyKind::fsdp, .world_size = 2}, Pass::train);
  const auto slots = std::count_if(schedule.slots.begin(), schedule.slots.end(),
                                   [](const Slot& slot) { return slot.kind == SlotKind::reduce; });
  CHECK(slots == 3);
  const auto backwards = actions_of(schedule, ActionKind::backward, "embed");
  const int slot = schedule.actions[backwards.back()].writes.front();
  for (const Action& action : schedule.actions) {
    if (action.kind != ActionKind::backward || action.writes.front() != slot) continue;
    CHECK(schedule.groups[action.group].name == "embed");
  }
}

TEST_CASE("a tied matrix is gathered once, and kept from the head's forward to its backward") {
  const Schedule schedule =
      build_schedule(tied(3), {.kind = StrategyKind::fsdp, .world_size = 2}, Pass::train);
  CHECK(actions_of(schedule, ActionKind::all_gather, "embed").size() == 1);
  const Schedule freed = build_schedule(
      tied(3), {.kind = StrategyKind::fsdp, .world_size = 2, .reshard_after_forward = Reshard::yes},
      Pass::train);
  CHECK(actions_of(freed, ActionKind::all_gather, "embed").size() == 3);
}
