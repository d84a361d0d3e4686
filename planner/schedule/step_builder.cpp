#include "planner/schedule/step_builder.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "base/check.h"

namespace shardlens::planner {

namespace {

bool is_on_host(const Schedule& schedule, const Action& action) {
  switch (action.kind) {
    case ActionKind::accumulate:
    case ActionKind::optimizer_step:
      return schedule.steps_on_host();
    case ActionKind::cast_shard:
      return action.bucket >= 0;  // of one bucket's masters, after their step
    case ActionKind::clip:
      return !action.reads.empty() && schedule.slot(action.reads.front()).on_host;
    default:
      return false;
  }
}

}  // namespace

Stream stream_of(const Schedule& schedule, const Action& action) {
  if (action.channel == Channel::replicate) return Stream::replicate;
  if (is_on_host(schedule, action)) return Stream::host;
  switch (action.kind) {
    case ActionKind::h2d:
      return Stream::h2d;
    case ActionKind::d2h:
      return Stream::d2h;
    case ActionKind::cast_shard:
    case ActionKind::all_gather:
      return Stream::gather;
    case ActionKind::reduce_scatter:
    case ActionKind::all_reduce:
      return Stream::reduce;  // between shards
    case ActionKind::load_input:
    case ActionKind::reshard:
    case ActionKind::forward:
    case ActionKind::loss:
    case ActionKind::recompute:
    case ActionKind::backward:
    case ActionKind::accumulate:
    case ActionKind::clip:
    case ActionKind::optimizer_step:
      return Stream::main;
  }
  unreachable("action kind out of range");
}

Channel channel_of(ActionKind kind) {
  switch (kind) {
    case ActionKind::all_gather:
      return Channel::gather;
    case ActionKind::reduce_scatter:
    case ActionKind::all_reduce:
      return Channel::reduce;
    default:
      return Channel::none;
  }
}

namespace {

void check_world_size(const Strategy& strategy) {
  const int world_size = strategy.world_size;
  if (world_size < 1 || world_size > kMaxWorldSize) {
    throw std::invalid_argument(fmt::format("world size {} is not between 1 and {}; choose another",
                                            world_size, kMaxWorldSize));
  }
  if (strategy.kind == StrategyKind::single && world_size != 1) {
    throw std::invalid_argument(fmt::format(
        "strategy single has one rank, not {}: nothing would reduce its gradients; choose ddp or "
        "fsdp",
        world_size));
  }
  if (strategy.kind == StrategyKind::hsdp &&
      (strategy.replicas < 1 || world_size % strategy.replicas != 0)) {
    throw std::invalid_argument(
        fmt::format("--replicas {}: {} ranks do not divide into that many copies; give a divisor",
                    strategy.replicas, world_size));
  }
  const int shards = strategy.shards();
  const int kept = strategy.regather_shards;
  if (strategy.reshard_after_forward == Reshard::partly && (kept < 1 || shards % kept != 0)) {
    throw std::invalid_argument(
        fmt::format("--reshard-after-forward {}: it does not divide the {} ranks that share the "
                    "state; give a divisor",
                    kept, shards));
  }
}

/// Simplifies a partial reshard: keeping a whole group means no reshard, keeping only one's own
/// range means a full one.
Reshard plain_reshard(const Strategy& strategy) {
  if (strategy.reshard_after_forward != Reshard::partly) return strategy.reshard_after_forward;
  if (strategy.regather_shards == 1) return Reshard::no;
  return strategy.regather_shards == strategy.shards() ? Reshard::yes : Reshard::partly;
}

}  // namespace

StepBuilder::StepBuilder(const models::ModelSpec& spec, const Strategy& strategy, Pass pass)
    : spec_(spec), strategy_(strategy) {
  check_world_size(strategy);
  strategy_.reshard_after_forward = plain_reshard(strategy);
  layout_ = make_layout(spec, strategy_);
  schedule_.strategy = strategy_.kind;
  schedule_.world_size = strategy_.world_size;
  schedule_.shards = strategy_.shards();
  if (strategy_.reshard_after_forward == Reshard::partly) {
    schedule_.regather_shards = strategy_.regather_shards;
  }
  schedule_.microbatches = strategy_.microbatches;
  schedule_.reduce_dtype = strategy_.reduce_dtype;
  schedule_.offload = strategy_.offload;
  schedule_.groups = layout_.groups;
  for (const models::UnitSpec& unit : spec.units) schedule_.units.push_back(unit.name);
  find_visits();
  if (pass == Pass::train) visits_in_pass_ = visits_.size();
}

// ---- the walk over the units --------------------------------------------------------------------

bool StepBuilder::is_recomputed(int unit) const {
  const int block = this->unit(unit).block;
  return strategy_.recompute_every > 0 && block >= 0 && block % strategy_.recompute_every == 0 &&
         unit >= first_trained_unit();
}

int StepBuilder::first_trained_unit() const {
  const auto found = std::find_if(layout_.units.begin(), layout_.units.end(),
                                  [](const UnitLayout& unit) { return !unit.buckets.empty(); });
  return static_cast<int>(found - layout_.units.begin());
}

void StepBuilder::find_visits() {
  for (int microbatch = 0; microbatch < strategy_.microbatches; ++microbatch) {
    visit_forward(microbatch);
    if (microbatch == 0) visits_in_pass_ = visits_.size();
    visit_backward(microbatch);
  }
}

void StepBuilder::visit_forward(int microbatch) {
  visits_.push_back({ActionKind::load_input, -1, microbatch, false});
  for (int unit = 0; unit < unit_count(); ++unit) {
    visits_.push_back({ActionKind::forward, unit, microbatch, this->unit(unit).group >= 0});
  }
  visits_.push_back({ActionKind::loss, -1, microbatch, false});
}

/// Visits the units in backward order, down to the first unit that trains anything.
void StepBuilder::visit_backward(int microbatch) {
  const int first = first_trained_unit();
  int block = -1;  // whose units are computed again already
  for (int unit = unit_count() - 1; unit >= first; --unit) {
    const bool has_parameters = this->unit(unit).group >= 0;
    if (is_recomputed(unit) && this->unit(unit).block != block) {
      block = this->unit(unit).block;
      int begin = unit;
      while (begin > first && this->unit(begin - 1).block == block) --begin;
      for (int again = begin; again <= unit; ++again) {
        visits_.push_back({ActionKind::recompute, again, microbatch, this->unit(again).group >= 0});
      }
    }
    const bool reads = spec_.units[static_cast<size_t>(unit)].backward_reads_parameters;
    visits_.push_back({ActionKind::backward, unit, microbatch, has_parameters && reads});
  }
}

// ---- actions ------------------------------------------------------------------------------------

DType StepBuilder::dtype_of(SlotKind kind) const {
  switch (kind) {
    case SlotKind::unsharded:
    case SlotKind::kept_shard:
      return strategy_.param_dtype;  // of most buckets; those kept in fp32 lie between them
    case SlotKind::reduce:
    case SlotKind::gradient_shard:
    case SlotKind::receive:
      return strategy_.reduce_dtype;
    case SlotKind::gradient_sum:
    case SlotKind::master_gradient:
    case SlotKind::norm:
    case SlotKind::master:
      return kMasterDType;
  }
  unreachable("slot kind out of range");
}

int StepBuilder::add_slot(SlotKind kind, int64_t bytes, bool on_host) {
  check(bytes >= 0 && bytes % bytes_of(dtype_of(kind)) == 0, "a slot ends within an element");
  const auto same_kind = std::count_if(schedule_.slots.begin(), schedule_.slots.end(),
                                       [&](const Slot& slot) { return slot.kind == kind; });
  schedule_.slots.push_back({kind, static_cast<int>(same_kind), dtype_of(kind), bytes, on_host});
  accesses_.emplace_back();
  return static_cast<int>(schedule_.slots.size()) - 1;
}

Action StepBuilder::action_of_unit(ActionKind kind, int unit) const {
  Action action = action_of_group(kind, this->unit(unit).group);
  check(action.group < static_cast<int>(schedule_.groups.size()), "a unit of an unknown group");
  action.unit = unit;
  return action;
}

Action StepBuilder::action_of_group(ActionKind kind, int group, int bucket) const {
  Action action;
  action.kind = kind;
  action.group = group;
  action.bucket = bucket;
  action.microbatch = microbatch_;
  return action;
}

std::vector<int> StepBuilder::hazards(const Action& action) const {
  std::vector<int> waits = action.waits;
  for (const int slot : action.reads) {
    const Accesses& accesses = accesses_.at(static_cast<size_t>(slot));
    check(accesses.write >= 0, "an action reads a slot that none has written");
    waits.push_back(accesses.write);
  }
  for (const int slot : action.writes) {
    const Accesses& accesses = accesses_[static_cast<size_t>(slot)];
    if (!schedule_.slot(slot).lasts()) waits.push_back(last_on_main_);
    waits.push_back(accesses.write);
    waits.insert(waits.end(), accesses.reads.begin(), accesses.reads.end());
  }
  std::erase(waits, -1);
  return waits;
}

void StepBuilder::remember(int id, const Action& action) {
  for (const int slot : action.reads) accesses_[static_cast<size_t>(slot)].reads.push_back(id);
  for (const int slot : action.writes) accesses_[static_cast<size_t>(slot)] = {id, {}};
}

int StepBuilder::add(Action action) {
  if (action.channel == Channel::none) action.channel = channel_of(action.kind);
  action.stream = stream_of(schedule_, action);
  action.waits = clocks_.minimal_waits(action.stream, hazards(action));
  clocks_.append(action.stream, action.waits);
  const auto id = static_cast<int>(schedule_.actions.size());
  check(action.waits.empty() || action.waits.back() < id, "an action waits for one behind it");
  if (action.stream == Stream::main) last_on_main_ = id;
  remember(id, action);
  schedule_.actions.push_back(std::move(action));
  return id;
}

void StepBuilder::add_visit(const Visit& visit, int slot) {
  microbatch_ = visit.microbatch;
  Action action =
      visit.unit < 0 ? action_of_group(visit.kind, -1) : action_of_unit(visit.kind, visit.unit);
  if (visit.kind == ActionKind::load_input) {
    action.bytes = spec_.input_bytes(strategy_.batch) + spec_.target_bytes(strategy_.batch);
  }
  if (slot >= 0) action.reads = {slot};
  add(std::move(action));
}

Schedule StepBuilder::take() {
  check(accesses_.size() == schedule_.slots.size(), "a slot was added past the builder");
  return std::move(schedule_);
}

}  // namespace shardlens::planner
