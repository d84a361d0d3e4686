#include "planner/step_builder.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace shardlens::planner {

Stream stream_of(ActionKind kind) {
  switch (kind) {
    case ActionKind::cast_shard:
    case ActionKind::all_gather:
      return Stream::gather;
    case ActionKind::reduce_scatter:
    case ActionKind::all_reduce:
      return Stream::reduce;
    case ActionKind::load_input:
    case ActionKind::reshard:
    case ActionKind::forward:
    case ActionKind::loss:
    case ActionKind::backward:
    case ActionKind::optimizer_step:
      return Stream::main;
  }
  throw std::logic_error("action kind out of range");
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

StepBuilder::StepBuilder(const models::ModelSpec& spec, const Strategy& strategy)
    : spec_(spec), strategy_(strategy) {
  if (strategy.world_size < 1 || strategy.world_size > kMaxWorldSize) {
    throw std::invalid_argument(fmt::format("world size {} is not between 1 and {}; choose another",
                                            strategy.world_size, kMaxWorldSize));
  }
  if (strategy.kind == StrategyKind::single && strategy.world_size != 1) {
    throw std::invalid_argument(fmt::format(
        "strategy single has one rank, not {}: nothing would reduce its gradients; choose ddp or "
        "fsdp",
        strategy.world_size));
  }
  schedule_.strategy = strategy.kind;
  schedule_.world_size = strategy.world_size;
  schedule_.shards = strategy.kind == StrategyKind::fsdp ? strategy.world_size : 1;
  layout_ = make_layout(spec, schedule_.shards, strategy.param_dtype);
  schedule_.groups = layout_.groups;
  for (const models::UnitSpec& unit : spec.units) schedule_.units.push_back(unit.name);
}

bool StepBuilder::reads_in_backward(int unit) const {
  return this->unit(unit).group >= 0 &&
         spec_.units[static_cast<size_t>(unit)].backward_reads_parameters;
}

int64_t StepBuilder::parameter_bytes(int group) const {
  return layout_.groups[static_cast<size_t>(group)].parameter_bytes();
}

int64_t StepBuilder::gradient_bytes(int group, int bucket) const {
  return layout_.groups[static_cast<size_t>(group)]
      .buckets[static_cast<size_t>(bucket)]
      .gradient_bytes();
}

int StepBuilder::add_slot(SlotKind kind, int64_t bytes) {
  const auto same_kind = std::count_if(schedule_.slots.begin(), schedule_.slots.end(),
                                       [&](const Slot& slot) { return slot.kind == kind; });
  const DType dtype = kind == SlotKind::unsharded ? strategy_.param_dtype : kGradientDType;
  schedule_.slots.push_back({kind, static_cast<int>(same_kind), dtype, bytes});
  return static_cast<int>(schedule_.slots.size()) - 1;
}

Action StepBuilder::action_of_unit(ActionKind kind, int unit) const {
  Action action = action_of_group(kind, this->unit(unit).group);
  action.unit = unit;
  return action;
}

Action StepBuilder::action_of_group(ActionKind kind, int group, int bucket) const {
  Action action;
  action.kind = kind;
  action.group = group;
  action.bucket = bucket;
  return action;
}

int StepBuilder::add(Action action) {
  action.stream = stream_of(action.kind);
  action.channel = channel_of(action.kind);
  std::erase(action.waits, -1);
  action.waits = clocks_.minimal_waits(action.stream, std::move(action.waits));
  clocks_.append(action.stream, action.waits);
  schedule_.actions.push_back(std::move(action));
  return static_cast<int>(schedule_.actions.size()) - 1;
}

void StepBuilder::add_load_input() {
  const models::VitSizes& sizes = spec_.vit;
  const int64_t image_bytes =
      sizes.channels * sizes.image_px * sizes.image_px * bytes_of(DType::fp32);
  const int64_t label_bytes = sizeof(int64_t);
  Action action;
  action.kind = ActionKind::load_input;
  action.bytes = strategy_.batch * (image_bytes + label_bytes);
  add(std::move(action));
}

void StepBuilder::add_forward(int unit, const GatheredParameters& parameters) {
  Action action = action_of_unit(ActionKind::forward, unit);
  action.waits = {parameters.gather};
  if (parameters.slot >= 0) action.reads = {parameters.slot};
  add(std::move(action));
}

void StepBuilder::add_loss() {
  Action action;
  action.kind = ActionKind::loss;
  add(std::move(action));
}

Schedule StepBuilder::take() { return std::move(schedule_); }

}  // namespace shardlens::planner
