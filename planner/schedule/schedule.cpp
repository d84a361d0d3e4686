#include "planner/schedule/schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "planner/schedule/builders.h"
#include "planner/schedule/repetition.h"

namespace shardlens::planner {
namespace {

char letter_of(SlotKind kind) {
  switch (kind) {
    case SlotKind::unsharded:
      return 'U';
    case SlotKind::reduce:
      return 'R';
    case SlotKind::gradient_shard:
      return 'G';
    case SlotKind::receive:
      return 'X';
    case SlotKind::kept_shard:
      return 'K';
    case SlotKind::gradient_sum:
      return 'A';
    case SlotKind::master_gradient:
      return 'F';
    case SlotKind::norm:
      return 'N';
    case SlotKind::master:
      return 'M';
  }
  unreachable("slot kind out of range");
}

}  // namespace

std::string Slot::name() const { return fmt::format("{}{}", letter_of(kind), index); }

int64_t Group::numel() const {
  return std::accumulate(buckets.begin(), buckets.end(), int64_t{0},
                         [](int64_t sum, const Bucket& one) { return sum + one.numel; });
}

int64_t Group::parameter_bytes() const {
  return bucket_offset_bytes(static_cast<int>(buckets.size()));
}

int64_t Group::shared_bytes() const {
  return std::accumulate(
      buckets.begin(), buckets.end(), int64_t{0},
      [](int64_t sum, const Bucket& one) { return sum + (one.whole ? 0 : one.parameter_bytes()); });
}

int64_t Group::bucket_offset_bytes(int bucket) const {
  return std::accumulate(
      buckets.begin(), buckets.begin() + bucket, int64_t{0},
      [](int64_t sum, const Bucket& one) { return sum + one.parameter_bytes(); });
}

int64_t Schedule::gradient_bytes(const Bucket& bucket) const {
  return bucket.numel * bytes_of(reduce_dtype);
}

RankSet Schedule::ranks_of(Channel channel) const {
  switch (channel) {
    case Channel::none:
      return {};
    case Channel::gather:
    case Channel::reduce:
      // Whole copies are reduced over all ranks at once.
      return {shards > 1 ? shards : world_size, 1};
    case Channel::regather:
      return {std::max(regather_shards, 1), 1};
    case Channel::replicate:
      return {replicas(), shards};
  }
  unreachable("channel out of range");
}

int64_t Schedule::host_bytes(int moments) const {
  if (offload == Offload::none) return 0;
  int64_t bytes = 0;
  for (const Group& group : groups) {
    for (const Bucket& bucket : group.buckets) {
      const int64_t masters = 1 + (steps_on_host() && !bucket.frozen ? moments : 0);
      const int64_t cast_bytes = bucket.dtype == kMasterDType ? 0 : bytes_of(bucket.dtype);
      bytes += shard_numel(bucket) * (masters * bytes_of(kMasterDType) + cast_bytes);
    }
  }
  for (const Slot& slot : slots) bytes += slot.on_host ? slot.bytes : 0;
  return bytes;
}

profiler::Category category_of(SlotKind kind) {
  using profiler::Category;
  switch (kind) {
    case SlotKind::unsharded:
    case SlotKind::kept_shard:
      return Category::unsharded_parameter;
    case SlotKind::reduce:
      return Category::reduce_buffer;
    case SlotKind::receive:
      return Category::communication;
    case SlotKind::gradient_shard:
    case SlotKind::gradient_sum:
    case SlotKind::master_gradient:
      return Category::gradient_shard;
    case SlotKind::master:
      return Category::parameter_shard;
    case SlotKind::norm:
      return Category::workspace;
  }
  return Category::other;
}

profiler::Category category_of(ActionKind kind) {
  using profiler::Category;
  switch (kind) {
    case ActionKind::load_input:
      return Category::input;
    case ActionKind::forward:
    case ActionKind::loss:
    case ActionKind::recompute:
    case ActionKind::backward:
      return Category::activation;
    case ActionKind::all_gather:
    case ActionKind::reduce_scatter:
    case ActionKind::all_reduce:
      return Category::communication;
    case ActionKind::h2d:
    case ActionKind::d2h:
    case ActionKind::cast_shard:
    case ActionKind::reshard:
    case ActionKind::accumulate:
    case ActionKind::clip:
    case ActionKind::optimizer_step:
      return Category::workspace;
  }
  return Category::other;
}

int Bucket::gradients_of(const models::UnitSpec& unit) const {
  return static_cast<int>(std::ranges::count_if(entries, [&](const BucketEntry& entry) {
    return std::ranges::count(unit.parameters, entry.parameter) > 0;
  }));
}

SlotLives Schedule::slot_lives() const {
  SlotLives lives{std::vector<std::vector<int>>(actions.size()),
                  std::vector<std::vector<int>>(actions.size())};
  std::vector<bool> began(slots.size());
  std::vector<int> last_readers(slots.size(), -1);
  int last_on_main = -1;
  for (int id = 0; id < static_cast<int>(actions.size()); ++id) {
    const Action& action = actions[static_cast<size_t>(id)];
    for (const int slot : action.writes) {
      const auto index = static_cast<size_t>(slot);
      if (slots[index].lasts() || began[index]) continue;
      began[index] = true;
      check(last_on_main >= 0, "a slot takes memory before the step begins");
      lives.begin[static_cast<size_t>(last_on_main)].push_back(slot);
    }
    for (const int slot : action.reads) last_readers[static_cast<size_t>(slot)] = id;
    if (action.stream == Stream::main) last_on_main = id;
  }
  for (size_t slot = 0; slot < slots.size(); ++slot) {
    if (!began[slot]) continue;
    check(last_readers[slot] >= 0, "a slot takes memory that nobody reads");
    lives.end[static_cast<size_t>(last_readers[slot])].push_back(static_cast<int>(slot));
  }
  return lives;
}

std::vector<UnitPlan> Schedule::unit_plans() const {
  std::vector<UnitPlan> plans(units.size());
  int last = -1;  // the previous unit in a run that is computed again
  for (const Action& action : actions) {
    if (action.unit < 0) continue;
    UnitPlan& plan = plans[static_cast<size_t>(action.unit)];
    if (action.kind == ActionKind::recompute) {
      plan.begins_run = action.unit != last + 1 || last < 0;
      plan.recomputed = true;
      last = action.unit;
    } else {
      last = -1;
    }
    if (action.kind == ActionKind::backward) plan.trains = true;
  }
  for (size_t unit = 1; unit < plans.size(); ++unit) {
    plans[unit].passes_back = plans[unit - 1].trains;
  }
  return plans;
}

std::vector<Channel> Schedule::channels() const {
  std::vector<Channel> joined;
  for (const Channel channel :
       {Channel::gather, Channel::reduce, Channel::regather, Channel::replicate}) {
    const auto uses = [&](const Action& action) { return action.channel == channel; };
    if (channel == Channel::reduce || std::any_of(actions.begin(), actions.end(), uses)) {
      joined.push_back(channel);
    }
  }
  return joined;
}

std::vector<std::vector<bool>> Schedule::sums_apart() const {
  std::vector<std::vector<bool>> apart;
  for (const Group& group : groups) apart.emplace_back(group.buckets.size());
  for (const Action& action : actions) {
    if (action.kind != ActionKind::accumulate) continue;
    apart[static_cast<size_t>(action.group)][static_cast<size_t>(action.bucket)] = true;
  }
  return apart;
}

bool Schedule::has_unsharded_slots() const {
  return std::any_of(slots.begin(), slots.end(),
                     [](const Slot& slot) { return slot.kind == SlotKind::unsharded; });
}

int64_t Schedule::used_bytes(const Action& action, int slot) const {
  const SlotKind kind = this->slot(slot).kind;
  switch (kind) {
    case SlotKind::unsharded:
      return groups[static_cast<size_t>(action.group)].parameter_bytes();
    case SlotKind::kept_shard:
      return groups[static_cast<size_t>(action.group)].shared_bytes() / regather_shards;
    case SlotKind::reduce: {
      const bool is_reduced =
          action.kind != ActionKind::backward && action.kind != ActionKind::reduce_scatter;
      const Bucket& bucket = bucket_of(action);
      return gradient_bytes(bucket) / (is_reduced ? shards_of(bucket) : 1);
    }
    case SlotKind::receive:
      return gradient_bytes(bucket_of(action));
    case SlotKind::gradient_shard:
      return shard_numel(bucket_of(action)) * bytes_of(reduce_dtype);
    case SlotKind::gradient_sum:
    case SlotKind::master_gradient:
    case SlotKind::master:
      return shard_numel(bucket_of(action)) * bytes_of(kMasterDType);
    case SlotKind::norm:
      return bytes_of(kMasterDType);
  }
  unreachable("slot kind out of range");
}

Schedule build_schedule(const models::ModelSpec& spec, const Strategy& strategy, Pass pass) {
  const bool computes_with_masters = !is_sharded(strategy.kind) &&
                                     strategy.param_dtype == DType::fp32 &&
                                     strategy.offload == Offload::none;
  const auto build = [&](int microbatches, Pass of) {
    Strategy some = strategy;
    some.microbatches = microbatches;
    return computes_with_masters ? build_ddp(spec, some, of) : build_fsdp(spec, some, of);
  };
  const FewMicrobatches few = few_that_stand_for(
      strategy.microbatches, [&](int microbatches) { return build(microbatches, Pass::train); });
  Schedule schedule = build(few.count, pass);
  if (pass == Pass::train) schedule = repeated(std::move(schedule), few, strategy.microbatches);
  check(pass != Pass::train || schedule.microbatches == strategy.microbatches,
        "a step is repeated to another number of microbatches");
  schedule.microbatches = strategy.microbatches;
  validate(schedule);
  return schedule;
}

}  // namespace shardlens::planner
