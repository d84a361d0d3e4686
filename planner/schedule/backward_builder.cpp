#include "planner/schedule/backward_builder.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/check.h"

namespace shardlens::planner {

BackwardBuilder::BackwardBuilder(StepBuilder& step) : step_(step) {
  plan_buckets();
  find_spread_buckets();
  find_late_buckets();
  assign_rings();
  add_slots();
}

// ---- slots --------------------------------------------------------------------------------------

void BackwardBuilder::plan_buckets() {
  constexpr size_t kNone = static_cast<size_t>(-1);
  for (const Group& group : step_.layout().groups) {
    plan_of_.emplace_back(group.buckets.size(), kNone);
  }
  for (int unit = step_.unit_count() - 1; unit >= 0; --unit) {
    const UnitLayout& used = step_.unit(unit);
    for (const int bucket : used.buckets) {
      size_t& index = plan_of_[static_cast<size_t>(used.group)][static_cast<size_t>(bucket)];
      if (index == kNone) {
        index = plans_.size();
        plans_.push_back({.group = used.group, .bucket = bucket});
      }
      ++plans_[index].segments;
    }
  }
}

void BackwardBuilder::find_spread_buckets() {
  std::vector<int> left;  // by plan that has begun: segments still to come
  for (int unit = step_.unit_count() - 1; unit >= 0; --unit) {
    const UnitLayout& used = step_.unit(unit);
    for (const int bucket : used.buckets) {
      const size_t index = plan_of_[static_cast<size_t>(used.group)][static_cast<size_t>(bucket)];
      if (index == left.size()) left.push_back(plans_[index].segments);
      // Buckets that began at least two before the newest one, and still miss segments, are spread.
      for (size_t old = 0; old + kRings < left.size(); ++old) {
        if (left[old] > 0) plans_[old].spread = true;
      }
      --left[index];
    }
  }
}

void BackwardBuilder::find_late_buckets() {
  std::set<int> left;      // groups that backward has left
  std::set<int> regained;  // ... and came back to
  int current = -1;
  for (const Visit& visit : step_.training_visits()) {
    if (!is_last(visit.microbatch) || !visit.reads || visit.kind == ActionKind::forward) continue;
    const int group = step_.unit(visit.unit).group;
    if (group == current) continue;
    if (left.contains(group)) regained.insert(group);
    left.insert(std::exchange(current, group));
  }
  for (BucketPlan& plan : plans_) plan.late = regained.contains(plan.group);
}

void BackwardBuilder::assign_rings() {
  size_t next = 0;
  for (BucketPlan& plan : plans_) {
    if (!rings_reduce_slot(plan)) continue;
    plan.ring = static_cast<int>(next++ % kRings);
  }
}

bool BackwardBuilder::is_shared(const BucketPlan& plan) const {
  return step_.schedule().shards_of(step_.bucket(plan.group, plan.bucket)) > 1;
}

bool BackwardBuilder::has_sum(const BucketPlan& plan) const {
  const Strategy& strategy = step_.strategy();
  return strategy.microbatches > 1 && strategy.sync == Sync::every &&
         (is_shared(plan) || lands_on_host(plan));
}

bool BackwardBuilder::is_held_on_device(const BucketPlan& plan) const {
  return (step_.strategy().holds_gradients || plan.late) && !lands_on_host(plan);
}

bool BackwardBuilder::receives(const BucketPlan& plan) const {
  // A staged communicator receives in host memory of its own.
  return is_shared(plan) && step_.strategy().communicator == CommunicatorKind::gloo &&
         !step_.strategy().staged;
}

bool BackwardBuilder::owns_reduce_slot(const BucketPlan& plan) const {
  const bool sums_in_place = step_.strategy().microbatches > 1 && !has_sum(plan);
  return plan.spread || sums_in_place || (!is_shared(plan) && is_held_on_device(plan));
}

bool BackwardBuilder::owns_shard_slot(const BucketPlan& plan) const {
  return rings_reduce_slot(plan) && is_shared(plan) && is_held_on_device(plan) && !has_sum(plan);
}

int64_t BackwardBuilder::slot_bytes(SlotKind kind, const BucketPlan& plan) const {
  const Bucket& bucket = step_.bucket(plan.group, plan.bucket);
  const Schedule& schedule = step_.schedule();
  switch (kind) {
    case SlotKind::reduce:
    case SlotKind::receive:
      return schedule.gradient_bytes(bucket);
    case SlotKind::gradient_shard:
      return schedule.gradient_bytes(bucket) / schedule.shards_of(bucket);
    default:
      return schedule.shard_numel(bucket) * bytes_of(kMasterDType);
  }
}

void BackwardBuilder::add_ring_slots(SlotKind kind, int BucketPlan::*slot, SlotCondition takes) {
  for (size_t ring = 0; ring < kRings; ++ring) {
    std::vector<BucketPlan*> takers;
    int64_t bytes = 0;
    for (size_t i = 0; i < plans_.size(); ++i) {
      BucketPlan& plan = plans_[i];
      const size_t its = plan.ring == kNoRing ? i % kRings : static_cast<size_t>(plan.ring);
      if (its != ring || !(this->*takes)(plan)) continue;
      takers.push_back(&plan);
      bytes = std::max(bytes, slot_bytes(kind, plan));
    }
    if (takers.empty()) continue;
    const int added = step_.add_slot(kind, bytes);
    for (BucketPlan* plan : takers) plan->*slot = added;
  }
}

void BackwardBuilder::add_own_slots(SlotKind kind, int BucketPlan::*slot, SlotCondition takes,
                                    bool on_host) {
  for (BucketPlan& plan : plans_) {
    if ((this->*takes)(plan)) plan.*slot = step_.add_slot(kind, slot_bytes(kind, plan), on_host);
  }
}

/// Adds the slot in which a gradient is cast to the masters' dtype for its step. One slot is
/// enough, since steps come one after the other.
void BackwardBuilder::add_cast_slot() {
  if (step_.strategy().reduce_dtype == kMasterDType) return;
  int64_t bytes = 0;
  for (const BucketPlan& plan : plans_) {
    if (!has_sum(plan)) bytes = std::max(bytes, slot_bytes(SlotKind::master_gradient, plan));
  }
  if (bytes == 0) return;
  const bool on_host = step_.schedule().steps_on_host();
  const int slot = step_.add_slot(SlotKind::master_gradient, bytes, on_host);
  for (BucketPlan& plan : plans_) {
    if (!has_sum(plan)) plan.cast_slot = slot;
  }
}

void BackwardBuilder::add_norm_slots() {
  const Strategy& strategy = step_.strategy();
  if (!strategy.holds_gradients) return;
  norm_slot_ = step_.add_slot(SlotKind::norm, bytes_of(kMasterDType));
  const bool sums_on_host =
      step_.schedule().steps_on_host() && strategy.microbatches > 1 && strategy.sync == Sync::every;
  if (sums_on_host) {
    host_norm_slot_ = step_.add_slot(SlotKind::norm, bytes_of(kMasterDType), /*on_host=*/true);
  }
}

void BackwardBuilder::add_slots() {
  using Plan = BucketPlan;
  using Self = BackwardBuilder;
  add_ring_slots(SlotKind::reduce, &Plan::reduce_slot, &Self::rings_reduce_slot);
  add_ring_slots(SlotKind::receive, &Plan::receive_slot, &Self::receives);
  add_own_slots(SlotKind::reduce, &Plan::reduce_slot, &Self::owns_reduce_slot);
  add_own_slots(SlotKind::gradient_shard, &Plan::shard_slot, &Self::owns_shard_slot);
  const bool on_host = step_.schedule().steps_on_host();
  add_own_slots(SlotKind::gradient_shard, &Plan::host_slot, &Self::lands_on_host, on_host);
  add_own_slots(SlotKind::gradient_sum, &Plan::sum_slot, &Self::has_sum, on_host);
  add_cast_slot();
  add_ring_slots(SlotKind::master, &Plan::master_slot, &Self::visits_device);
  add_norm_slots();
}

// ---- actions ------------------------------------------------------------------------------------

void BackwardBuilder::add_unit(const Visit& visit, int slot) {
  const UnitLayout& used = step_.unit(visit.unit);
  Action segment = step_.action_of_unit(ActionKind::backward, visit.unit);
  if (slot >= 0) segment.reads = {slot};
  if (used.buckets.empty()) step_.add(segment);
  for (const int bucket : used.buckets) {
    BucketPlan& plan =
        plans_[plan_of_[static_cast<size_t>(used.group)][static_cast<size_t>(bucket)]];
    if (plan.segments_left == 0) begin(plan, visit.microbatch);
    segment.bucket = bucket;
    segment.writes = {plan.reduce_slot};
    step_.add(segment);
    if (--plan.segments_left == 0) end(plan);
  }
}

void BackwardBuilder::begin(BucketPlan& plan, int microbatch) {
  check(plan.segments_left == 0 && plan.reduce_slot >= 0,
        "a bucket begins twice, or has no slot for its gradients");
  if (plan.is_reduced) retire(plan);
  if (rings_reduce_slot(plan)) take_ring(plan);
  plan.microbatch = microbatch;
  plan.segments_left = plan.segments;
}

void BackwardBuilder::take_ring(BucketPlan& plan) {
  BucketPlan*& resident = residents_[static_cast<size_t>(plan.ring)];
  check(resident == nullptr || resident->segments_left == 0,
        "a bucket takes the slot of one that is unfinished");
  if (resident != nullptr && resident->is_reduced) retire(*resident);
  resident = &plan;
}

/// Ends a microbatch of the bucket: all of its gradients have arrived.
void BackwardBuilder::end(BucketPlan& plan) {
  if (step_.strategy().sync == Sync::last && !is_last(plan.microbatch)) return;
  reduce(plan);
  // Buckets outside of the ring leave one by one as well, each after the next one's backward.
  for (BucketPlan* earlier : std::vector<BucketPlan*>(reduced_)) {
    if (earlier->ring == kNoRing) retire(*earlier);
  }
  check(!plan.is_reduced, "a bucket is reduced twice");
  plan.is_reduced = true;
  reduced_.push_back(&plan);
}

void BackwardBuilder::reduce(BucketPlan& plan) {
  const Schedule& schedule = step_.schedule();
  if (!is_shared(plan)) {
    average_over(Channel::reduce, plan, plan.reduce_slot);
    if (schedule.shards > 1) average_over(Channel::replicate, plan, plan.reduce_slot);
    return;
  }
  Action action = action_of(ActionKind::reduce_scatter, plan);
  action.bytes = slot_bytes(SlotKind::reduce, plan);
  action.reads = {plan.reduce_slot};
  action.writes = {reduced_slot(plan)};
  if (plan.receive_slot >= 0) action.writes.push_back(plan.receive_slot);
  step_.add(std::move(action));
  average_over(Channel::replicate, plan, reduced_slot(plan));
}

/// Averages in place; does nothing if the channel joins no other rank.
void BackwardBuilder::average_over(Channel channel, const BucketPlan& plan, int slot) {
  if (step_.schedule().ranks_of(channel).size == 1) return;
  Action action = action_of(ActionKind::all_reduce, plan);
  action.channel = channel;
  action.bytes = slot_bytes(SlotKind::gradient_shard, plan);
  action.reads = {slot};
  action.writes = {slot};
  step_.add(std::move(action));
}

void BackwardBuilder::retire(BucketPlan& plan) {
  check(plan.is_reduced, "a bucket leaves its slot that was not reduced");
  check(std::erase(reduced_, &plan) == 1, "a reduced bucket is not listed, or is twice");
  plan.is_reduced = false;
  const bool steps = is_last(plan.microbatch);
  const bool has_norm = steps && norm_slot_ >= 0;
  // The device has a gradient before the host does, except a sum, which only the host has.
  if (has_norm && plan.sum_slot < 0) add_to_norm(plan, reduced_slot(plan));
  if (plan.host_slot >= 0) copy_to_host(plan);
  if (plan.sum_slot >= 0) accumulate(plan);
  if (has_norm && plan.sum_slot >= 0) add_to_norm(plan, plan.sum_slot);
  if (!steps) return;
  if (norm_slot_ < 0 && !plan.late) return step_optimizer(plan);
  held_.push_back(&plan);
}

void BackwardBuilder::copy_to_host(const BucketPlan& plan) {
  Action copy = action_of(ActionKind::d2h, plan);
  copy.bytes = slot_bytes(SlotKind::gradient_shard, plan);
  copy.reads = {reduced_slot(plan)};
  copy.writes = {plan.host_slot};
  step_.add(std::move(copy));
}

void BackwardBuilder::accumulate(const BucketPlan& plan) {
  Action sum = action_of(ActionKind::accumulate, plan);
  sum.reads = {plan.host_slot >= 0 ? plan.host_slot : plan.reduce_slot};
  sum.writes = {plan.sum_slot};
  step_.add(std::move(sum));
}

void BackwardBuilder::add_to_norm(const BucketPlan& plan, int slot) {
  Action clip = action_of(ActionKind::clip, plan);
  clip.reads = {slot};
  clip.writes = {host_norm_slot_ >= 0 ? host_norm_slot_ : norm_slot_};
  step_.add(std::move(clip));
}

/// Computes N from the buckets' contributions, and the factor from N.
void BackwardBuilder::find_factor() {
  const int64_t bytes = step_.schedule().slot(norm_slot_).bytes;
  if (host_norm_slot_ >= 0) {
    Action copy = step_.action_of_group(ActionKind::h2d, -1);
    copy.bytes = bytes;
    copy.reads = {host_norm_slot_};
    copy.writes = {norm_slot_};
    step_.add(std::move(copy));
  }
  if (step_.schedule().shards > 1) {
    Action sum = step_.action_of_group(ActionKind::all_reduce, -1);
    sum.bytes = bytes;
    sum.reads = {norm_slot_};
    sum.writes = {norm_slot_};
    step_.add(std::move(sum));
  }
  Action factor = step_.action_of_group(ActionKind::clip, -1);
  factor.writes = {norm_slot_};
  step_.add(std::move(factor));
  if (!step_.schedule().steps_on_host()) return;
  Action copy = step_.action_of_group(ActionKind::d2h, -1);
  copy.bytes = bytes;
  copy.reads = {norm_slot_};
  norm_copy_ = step_.add(std::move(copy));
}

void BackwardBuilder::step_optimizer(const BucketPlan& plan) {
  if (plan.master_slot >= 0) fetch_masters(plan);
  Action action = action_of(ActionKind::optimizer_step, plan);
  check(gradient_slot(plan) >= 0, "a bucket is stepped that has no gradient");
  action.reads = {gradient_slot(plan)};
  if (norm_copy_ >= 0) {
    action.waits = {norm_copy_};
  } else if (norm_slot_ >= 0) {
    action.reads.push_back(norm_slot_);
  }
  if (plan.cast_slot >= 0) action.writes = {plan.cast_slot};
  if (plan.master_slot >= 0) action.writes.push_back(plan.master_slot);
  publish(plan, step_.add(std::move(action)));
}

void BackwardBuilder::fetch_masters(const BucketPlan& plan) {
  Action copy = action_of(ActionKind::h2d, plan);
  copy.bytes = slot_bytes(SlotKind::master, plan);
  copy.writes = {plan.master_slot};
  step_.add(std::move(copy));
}

void BackwardBuilder::publish(const BucketPlan& plan, int last) {
  const Schedule& schedule = step_.schedule();
  if (schedule.offload == Offload::none) return;
  const Bucket& bucket = step_.bucket(plan.group, plan.bucket);
  const int64_t shard_bytes = schedule.shard_numel(bucket) * bytes_of(bucket.dtype);
  if (plan.master_slot >= 0) {
    Action copy = action_of(ActionKind::d2h, plan);
    copy.bytes = slot_bytes(SlotKind::master, plan);
    copy.reads = {plan.master_slot};
    last = step_.add(std::move(copy));
  }
  if (bucket.dtype != kMasterDType) {
    Action cast = action_of(ActionKind::cast_shard, plan);
    cast.bytes = shard_bytes;
    cast.waits = {last};
    last = step_.add(std::move(cast));
  }
  if (schedule.gathers_from_host()) return;
  Action renewal = action_of(ActionKind::h2d, plan);
  renewal.bytes = shard_bytes;
  renewal.waits = {last};
  renewals_.push_back(std::move(renewal));
}

void BackwardBuilder::finish() {
  for (BucketPlan* plan : std::vector<BucketPlan*>(reduced_)) retire(*plan);
  check(reduced_.empty(), "a bucket is left that was reduced and never applied");
  for (const BucketPlan& plan : plans_) {
    check(plan.segments_left == 0, "a bucket is left whose gradients have not all come");
  }
  if (norm_slot_ >= 0) find_factor();
  for (const BucketPlan* plan : held_) step_optimizer(*plan);
  for (Action& renewal : renewals_) step_.add(std::move(renewal));
}

Action BackwardBuilder::action_of(ActionKind kind, const BucketPlan& plan) const {
  Action action = step_.action_of_group(kind, plan.group, plan.bucket);
  action.microbatch = plan.microbatch;  // it may leave its ring in the next one
  return action;
}

int BackwardBuilder::reduced_slot(const BucketPlan& plan) const {
  return plan.shard_slot >= 0 ? plan.shard_slot : plan.reduce_slot;
}

int BackwardBuilder::gradient_slot(const BucketPlan& plan) const {
  if (plan.sum_slot >= 0) return plan.sum_slot;
  return plan.host_slot >= 0 ? plan.host_slot : reduced_slot(plan);
}

}  // namespace shardlens::planner
