#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <map>
#include <set>

#include "models/families.h"
#include "planner/schedule/builders.h"
#include "planner/schedule/schedule.h"

using namespace shardlens;
using namespace shardlens::planner;

namespace {

Strategy fsdp(Reshard reshard, int world_size = 2) {
  Strategy strategy;
  strategy.world_size = world_size;
  strategy.reshard_after_forward = reshard;
  return strategy;
}

/// `depth` gathers ahead of the compute, forward and backward.
Strategy prefetching(int depth, int world_size = 2) {
  Strategy strategy = fsdp(Reshard::yes, world_size);
  strategy.forward_prefetch = depth;
  strategy.backward_prefetch = depth;
  return strategy;
}

Schedule tutorial(Reshard reshard, Pass pass = Pass::train) {
  return build_schedule(models::find_spec("vit-tutorial"), fsdp(reshard), pass);
}

std::vector<int> ids_of(const Schedule& schedule, ActionKind kind) {
  std::vector<int> ids;
  for (int id = 0; id < static_cast<int>(schedule.actions.size()); ++id) {
    if (schedule.actions[id].kind == kind) ids.push_back(id);
  }
  return ids;
}

std::vector<Slot> slots_of(const Schedule& schedule, SlotKind kind) {
  std::vector<Slot> slots;
  for (const Slot& slot : schedule.slots) {
    if (slot.kind == kind) slots.push_back(slot);
  }
  return slots;
}

/// Groups in order of their gathers.
std::vector<std::string> gathered(const Schedule& schedule) {
  std::vector<std::string> names;
  for (const int id : ids_of(schedule, ActionKind::all_gather)) {
    names.push_back(schedule.groups[schedule.actions[id].group].name);
  }
  return names;
}

/// A model whose embedding and head are both larger than a block.
models::ModelSpec large_ends() {
  models::VitSizes sizes{.image_px = 32,
                         .patch_px = 16,
                         .channels = 3,
                         .layers = 4,
                         .heads = 2,
                         .width = 32,
                         .mlp_width = 32,
                         .classes = 900};
  return models::make_spec("large_ends", sizes);
}

}  // namespace

TEST_CASE("gathers go through the groups forward, then back") {
  const std::vector<std::string> forward = {"embed",  "block0", "block1", "block2",
                                            "block3", "block4", "block5", "block6",
                                            "block7", "block8", "block9", "head"};
  std::vector<std::string> backward(forward.rbegin(), forward.rend() - 1);  // not the embedding

  std::vector<std::string> every = forward;
  every.insert(every.end(), backward.begin(), backward.end());
  CHECK(gathered(tutorial(Reshard::yes)) == every);

  every.erase(every.begin() + static_cast<int>(forward.size()));  // the head stays
  CHECK(gathered(tutorial(Reshard::automatic)) == every);
  CHECK(gathered(tutorial(Reshard::no)) == forward);
  for (const Reshard reshard : {Reshard::yes, Reshard::automatic, Reshard::no}) {
    CHECK(gathered(tutorial(reshard, Pass::evaluate)) == forward);
  }
}

TEST_CASE("slots of the tutorial's model are what the groups and buckets need") {
  constexpr int64_t kBlockBytes = 99584 * 4;
  const Schedule schedule = tutorial(Reshard::automatic);
  const std::vector<Slot> unsharded = slots_of(schedule, SlotKind::unsharded);
  REQUIRE(unsharded.size() == 3);
  CHECK(unsharded[0].bytes == kBlockBytes);
  CHECK(unsharded[1].bytes == kBlockBytes);
  CHECK(unsharded[2].bytes == (1296 + 256 + 16) * 4);  // the head, aligned and padded

  CHECK(slots_of(tutorial(Reshard::yes), SlotKind::unsharded).size() == 2);
  // Eleven kept groups, and only the embedding in the ring.
  CHECK(slots_of(tutorial(Reshard::no), SlotKind::unsharded).size() == 12);
  CHECK(slots_of(schedule, SlotKind::receive).empty());
  CHECK(slots_of(schedule, SlotKind::gradient_shard).empty());
  const std::vector<Slot> reduce = slots_of(schedule, SlotKind::reduce);
  REQUIRE(reduce.size() == 2);
  CHECK(std::max(reduce[0].bytes, reduce[1].bytes) == 49152 * 4);
}

TEST_CASE("gloo reductions have a receive slot as large as the bucket") {
  Strategy strategy = fsdp(Reshard::automatic);
  strategy.communicator = CommunicatorKind::gloo;
  const Schedule schedule =
      build_schedule(models::find_spec("vit-tutorial"), strategy, Pass::train);
  const std::vector<Slot> receive = slots_of(schedule, SlotKind::receive);
  const std::vector<Slot> reduce = slots_of(schedule, SlotKind::reduce);
  REQUIRE(receive.size() == 2);
  CHECK(receive[0].bytes == reduce[0].bytes);
  CHECK(receive[1].bytes == reduce[1].bytes);
  for (const int id : ids_of(schedule, ActionKind::reduce_scatter)) {
    CHECK(schedule.actions[id].writes.size() == 2);
  }
}

TEST_CASE("the first gathers come before the input, each later one during a forward") {
  const Schedule schedule = tutorial(Reshard::yes);
  const std::vector<int> gathers = ids_of(schedule, ActionKind::all_gather);
  const std::vector<int> casts = ids_of(schedule, ActionKind::cast_shard);
  CHECK(std::vector{casts[0], gathers[0], casts[1], gathers[1]} == std::vector{0, 1, 2, 3});
  CHECK(schedule.actions[4].kind == ActionKind::load_input);

  std::map<int, int> first_forward;  // by group
  for (const int id : ids_of(schedule, ActionKind::forward)) {
    first_forward.try_emplace(schedule.actions[id].group, id);
  }
  for (int group = 1; group + 1 < static_cast<int>(schedule.groups.size()); ++group) {
    CHECK(gathers[group + 1] < first_forward[group]);
    CHECK(gathers[group + 1] > first_forward[group - 1]);
  }
}

TEST_CASE("deeper prefetch takes more slots, no prefetch takes one") {
  for (int depth = 0; depth <= 4; ++depth) {
    CAPTURE(depth);
    const models::ModelSpec spec = models::find_spec("vit-tutorial");
    const Schedule schedule = build_fsdp(spec, prefetching(depth), Pass::train);
    validate(schedule);
    CHECK(slots_of(schedule, SlotKind::unsharded).size() == static_cast<size_t>(depth) + 1);
    const int loaded = ids_of(schedule, ActionKind::load_input).front();
    CHECK(loaded == 2 * (depth + 1));  // casts and gathers
  }
}

TEST_CASE("groups above a block have a slot of their own, shared where they cannot meet") {
  const models::ModelSpec spec = large_ends();
  const Schedule schedule = build_schedule(spec, fsdp(Reshard::yes, 1), Pass::train);
  const std::vector<Slot> unsharded = slots_of(schedule, SlotKind::unsharded);
  const int64_t block_bytes = schedule.groups[1].numel() * 4;
  const int64_t embed_bytes = schedule.groups.front().numel() * 4;
  const int64_t head_bytes = schedule.groups.back().numel() * 4;
  REQUIRE(embed_bytes > block_bytes);
  REQUIRE(head_bytes > block_bytes);
  REQUIRE(unsharded.size() == 3);
  CHECK(unsharded[0].bytes == block_bytes);
  CHECK(unsharded[1].bytes == block_bytes);
  CHECK(unsharded[2].bytes == std::max(embed_bytes, head_bytes));
}

TEST_CASE("groups that prefetch unshards at once do not share a slot") {
  models::ModelSpec spec = large_ends();
  // Only one block: with depth 1 the head is gathered while the block computes, with depth 2
  // while the embedding does.
  models::VitSizes sizes = spec.as<models::VitSizes>();
  sizes.layers = 1;
  spec = models::make_spec("one_block", sizes);
  const auto own_slots = [&](int depth) {
    const Schedule schedule = build_fsdp(spec, prefetching(depth, 1), Pass::train);
    validate(schedule);
    const int64_t block_bytes = schedule.groups[1].numel() * 4;
    const std::vector<Slot> slots = slots_of(schedule, SlotKind::unsharded);
    return std::count_if(slots.begin(), slots.end(),
                         [&](const Slot& slot) { return slot.bytes > block_bytes; });
  };
  CHECK(own_slots(1) == 1);
  CHECK(own_slots(2) == 2);
}

TEST_CASE("an evaluation shares the training step's unsharded slots") {
  for (const Reshard reshard : {Reshard::yes, Reshard::automatic, Reshard::no}) {
    const Schedule train = tutorial(reshard);
    const Schedule evaluate = tutorial(reshard, Pass::evaluate);
    CHECK(evaluate.slots == slots_of(train, SlotKind::unsharded));
    CHECK(std::equal(evaluate.slots.begin(), evaluate.slots.end(), train.slots.begin()));
    CHECK(evaluate.groups == train.groups);
    CHECK(evaluate.units == train.units);
    std::set<ActionKind> kinds;
    for (const Action& action : evaluate.actions) kinds.insert(action.kind);
    CHECK(kinds == std::set{ActionKind::load_input, ActionKind::cast_shard, ActionKind::all_gather,
                            ActionKind::reshard, ActionKind::forward, ActionKind::loss});
  }
}

TEST_CASE("a single rank does what many do, without the collectives") {
  const models::ModelSpec spec = models::find_spec("vit-tutorial");
  const auto kinds_of = [&](int world_size) {
    std::vector<ActionKind> kinds;
    for (const Action& action :
         build_schedule(spec, fsdp(Reshard::automatic, world_size), Pass::train).actions) {
      if (action.channel == Channel::none) kinds.push_back(action.kind);
      CHECK((world_size > 1 || action.channel == Channel::none));
    }
    return kinds;
  };
  CHECK(kinds_of(1) == kinds_of(2));
}

TEST_CASE("bf16 parameters halve what is gathered, gradients stay fp32") {
  const models::ModelSpec spec = models::find_spec("vit-tutorial");
  Strategy strategy = fsdp(Reshard::automatic);
  const Schedule fp32 = build_schedule(spec, strategy, Pass::train);
  strategy.param_dtype = DType::bf16;
  const Schedule bf16 = build_schedule(spec, strategy, Pass::train);
  REQUIRE(bf16.slots.size() == fp32.slots.size());
  for (size_t i = 0; i < bf16.slots.size(); ++i) {
    const bool is_parameters = bf16.slots[i].kind == SlotKind::unsharded;
    CHECK(bf16.slots[i].dtype == (is_parameters ? DType::bf16 : DType::fp32));
    CHECK(bf16.slots[i].bytes * (is_parameters ? 2 : 1) == fp32.slots[i].bytes);
  }
  REQUIRE(bf16.actions.size() == fp32.actions.size());
  for (size_t i = 0; i < bf16.actions.size(); ++i) {
    const bool is_gathered = bf16.actions[i].stream == Stream::gather;
    CHECK(bf16.actions[i].bytes * (is_gathered ? 2 : 1) == fp32.actions[i].bytes);
  }
}

TEST_CASE("a bucket's optimizer step runs two buckets later, after the next one's backward") {
  const Schedule schedule = tutorial(Reshard::automatic);
  const std::vector<int> reductions = ids_of(schedule, ActionKind::reduce_scatter);
  const std::vector<int> steps = ids_of(schedule, ActionKind::optimizer_step);
  REQUIRE(reductions.size() == steps.size());
  for (size_t i = 0; i < steps.size(); ++i) {
    const Action& step = schedule.actions[steps[i]];
    CHECK(step.group == schedule.actions[reductions[i]].group);
    CHECK(step.bucket == schedule.actions[reductions[i]].bucket);
    CHECK(step.waits == std::vector<int>{reductions[i]});
    if (i + 1 < steps.size()) CHECK(steps[i] > reductions[i + 1]);
    if (i + 2 < steps.size()) CHECK(steps[i] < reductions[i + 2]);
  }
}
