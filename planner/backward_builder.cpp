#include "planner/backward_builder.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace shardlens::planner {

BackwardBuilder::BackwardBuilder(StepBuilder& step) : step_(step) {
  plan_turns();
  add_slots();
}

BackwardBuilder::BucketPlan& BackwardBuilder::plan_of(int group, int bucket) {
  return plans_[static_cast<size_t>(group)][static_cast<size_t>(bucket)];
}

void BackwardBuilder::plan_turns() {
  for (const Group& group : step_.layout().groups) plans_.emplace_back(group.buckets.size());
  size_t next = 0;
  for (int unit = step_.unit_count() - 1; unit >= 0; --unit) {
    const UnitLayout& used = step_.unit(unit);
    for (const int bucket : used.buckets) {
      BucketPlan& plan = plan_of(used.group, bucket);
      ++plan.segments;
      if (plan.turn >= 0) continue;
      plan.turn = static_cast<int>(next++ % turns_.size());
      int64_t& bytes = turns_[static_cast<size_t>(plan.turn)].bucket_bytes;
      bytes = std::max(bytes, step_.gradient_bytes(used.group, bucket));
    }
  }
}

void BackwardBuilder::add_slots() {
  const bool shards_gradients = step_.shards() > 1;
  // A staged communicator receives in host memory of its own.
  const bool receives =
      step_.strategy().communicator == CommunicatorKind::gloo && !step_.strategy().staged;
  const auto add_all = [&](SlotKind kind, int Turn::*slot, int ranks) {
    for (Turn& turn : turns_) {
      if (turn.bucket_bytes > 0) turn.*slot = step_.add_slot(kind, turn.bucket_bytes / ranks);
    }
  };
  add_all(SlotKind::reduce, &Turn::reduce_slot, 1);
  if (shards_gradients) add_all(SlotKind::gradient_shard, &Turn::shard_slot, step_.shards());
  if (shards_gradients && receives) add_all(SlotKind::receive, &Turn::receive_slot, 1);
}

BackwardBuilder::Turn& BackwardBuilder::acquire(int unit, int group, int bucket) {
  const BucketPlan& plan = plan_of(group, bucket);
  Turn& turn = turns_[static_cast<size_t>(plan.turn)];
  if (turn.group == group && turn.bucket == bucket) return turn;
  if (turn.segments_left > 0) {
    throw std::invalid_argument(fmt::format(
        "model {}: unit {} begins a bucket of gradients while more than one other is unfinished; "
        "put units that share parameters next to each other",
        step_.spec().name, step_.spec().units[static_cast<size_t>(unit)].name));
  }
  if (turn.group >= 0) step_optimizer(turn);
  turn.group = group;
  turn.bucket = bucket;
  turn.segments_left = plan.segments;
  ++turns_taken_;
  return turn;
}

void BackwardBuilder::add_unit(int unit, const GatheredParameters& parameters) {
  const UnitLayout& used = step_.unit(unit);
  Action segment = step_.action_of_unit(ActionKind::backward, unit);
  if (parameters.slot >= 0) segment.reads = {parameters.slot};
  segment.waits = {parameters.gather};
  if (used.buckets.empty()) step_.add(segment);
  for (const int bucket : used.buckets) {
    Turn& turn = acquire(unit, used.group, bucket);
    segment.bucket = bucket;
    segment.writes = {turn.reduce_slot};
    const int last_backward = step_.add(segment);
    if (--turn.segments_left == 0) reduce(turn, last_backward);
  }
}

void BackwardBuilder::reduce(Turn& turn, int last_backward) {
  if (step_.world_size() == 1) return;
  const bool is_sharded = step_.shards() > 1;
  Action action = step_.action_of_group(
      is_sharded ? ActionKind::reduce_scatter : ActionKind::all_reduce, turn.group, turn.bucket);
  action.bytes = step_.gradient_bytes(turn.group, turn.bucket);
  action.waits = {last_backward};
  action.reads = {turn.reduce_slot};
  action.writes = {is_sharded ? turn.shard_slot : turn.reduce_slot};
  if (turn.receive_slot >= 0) action.writes.push_back(turn.receive_slot);
  turn.reduction = step_.add(std::move(action));
}

void BackwardBuilder::step_optimizer(Turn& turn) {
  Action action = step_.action_of_group(ActionKind::optimizer_step, turn.group, turn.bucket);
  action.waits = {turn.reduction};
  action.reads = {turn.shard_slot >= 0 ? turn.shard_slot : turn.reduce_slot};
  step_.add(std::move(action));
  turn.group = -1;
}

void BackwardBuilder::finish() {
  // The next turn is that of the bucket that has waited longest.
  for (size_t i = 0; i < turns_.size(); ++i) {
    Turn& turn = turns_[(turns_taken_ + i) % turns_.size()];
    if (turn.group >= 0) step_optimizer(turn);
  }
}

}  // namespace shardlens::planner
