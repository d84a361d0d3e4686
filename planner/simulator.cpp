#include "planner/simulator.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "planner/meta/losses.h"
#include "planner/meta/operators.h"
#include "planner/meta/reductions.h"

namespace shardlens::planner {

using meta::Tensor;
using profiler::Category;

Simulator::Simulator(const models::ModelSpec& spec, const Config& config, SimulatedState& state,
                     const RankMemory& memory)
    : spec_(spec),
      state_(state),
      memory_(memory),
      device_(memory.device),
      units_(models::make_units<meta::MetaOps>(spec)),
      output_dtype_(output_dtype_of(config)),
      cast_inputs_(config.cast_inputs),
      scale_(config, memory) {
  if (!config.keep_fp32.empty()) compute_dtype_ = strategy_of(config).param_dtype;
  for (size_t unit = 0; unit < units_.size(); ++unit) {
    input_types_.push_back(cast_inputs_ ? input_type(static_cast<int>(unit)) : std::nullopt);
    unit_labels_.push_back(memory_.timeline.label(spec.units[unit].name));
  }
  device_.find_place = [this](const meta::Leaf& leaf) { return place_for(leaf); };
  install_hooks();
}

void Simulator::install_hooks() {
  for (size_t i = 0; i < spec_.parameters.size(); ++i) {
    const auto parameter = static_cast<int>(i);
    const auto& leaf = state_.weight(parameter).leaf();
    if (leaf) leaf->on_gradient = [this, parameter] { on_gradient(parameter); };
  }
}

void Simulator::run(const Schedule& schedule, const LoadBatch& load_batch,
                    const LeaveOut& leave_out) {
  load_batch_ = &load_batch;
  begin(schedule);
  const meta::GradMode grad_mode(device_, trains_);
  const TimelineScope scope(memory_.timeline, Purpose{});
  while (next_ < schedule.size()) {
    leave_out_rounds(leave_out);
    if (next_ < schedule.size()) execute(next_++);
  }
}

void Simulator::leave_out_rounds(const LeaveOut& leave_out) {
  const Repetition& repetition = schedule_->repetition;
  if (repetition.times == 1 || repetition.index_of(next_) != repetition.begin) return;
  const int left = repetition.times - repetition.round_of(next_);
  next_ += static_cast<int>(leave_out(left)) * repetition.length();
}

void Simulator::begin(const Schedule& schedule) {
  if (schedule_ != &schedule) {
    schedule_ = &schedule;
    plans_ = schedule.unit_plans();
    sums_apart_ = schedule.sums_apart();
    slot_lives_ = schedule.slot_lives();
    trains_ = std::ranges::any_of(plans_, &UnitPlan::trains);
    group_labels_.clear();
    for (const Group& group : schedule.groups) {
      group_labels_.push_back(memory_.timeline.label(group.name));
    }
  }
  next_ = 0;
  inputs_.assign(units_.size(), {});
  outputs_.assign(units_.size(), {});
  gradients_.assign(spec_.parameters.size(), {});
  scale_.begin_step();
  loss_ = {};
  logits_ = {};
  is_counted_ = false;
}

uint32_t Simulator::label_of(const Action& action) const {
  if (action.unit >= 0) return unit_labels_[static_cast<size_t>(action.unit)];
  return action.group >= 0 ? group_labels_[static_cast<size_t>(action.group)] : 0;
}

void Simulator::execute(int id) {
  const Action& action = schedule_->action(id);
  current_ = id;
  memory_.timeline.begin_action(id);
  const Purpose before = memory_.timeline.change({category_of(action.kind), label_of(action), id});
  dispatch(action);
  if (action.kind == ActionKind::backward) return;
  memory_.timeline.change(before);
  finish(id);
  memory_.timeline.end_action(id);
}

void Simulator::finish(int id) {
  const auto index = static_cast<size_t>(schedule_->repetition.index_of(id));
  for (const int slot : slot_lives_.end[index]) state_.end_slot(slot);
  for (const int slot : slot_lives_.begin[index]) state_.begin_slot(slot);
}

void Simulator::dispatch(const Action& action) {
  switch (action.kind) {
    case ActionKind::load_input:
      return load_input();
    case ActionKind::forward:
      return forward(action);
    case ActionKind::loss:
      return compute_loss();
    case ActionKind::recompute:
      return recompute(action);
    case ActionKind::backward:
      return backward(action);
    case ActionKind::d2h:
      return copy_scalars(action);
    case ActionKind::clip:
      return clip(action);
    case ActionKind::optimizer_step:
      return optimizer_step(action);
    default:
      return;  // copies and collectives take no memory of their own
  }
}

void Simulator::begin_microbatch() {
  for (size_t i = 0; i < gradients_.size(); ++i) {
    const ParameterPlace& place = state_.place(static_cast<int>(i));
    const bool apart =
        sums_apart_[static_cast<size_t>(place.group)][static_cast<size_t>(place.bucket)];
    gradients_[i] = {.stored = gradients_[i].stored && !apart};
  }
}

void Simulator::load_input() {
  begin_microbatch();
  batch_ = (*load_batch_)();
  carried_ = batch_.input;
}

// ---- units --------------------------------------------------------------------------------------

std::optional<meta::Type> Simulator::input_type(int unit) const {
  std::optional<meta::Type> shared;
  for (const int parameter : spec_.units[static_cast<size_t>(unit)].parameters) {
    const meta::Type type = state_.weight(parameter).scalar_type();
    if (shared.value_or(type) != type) return std::nullopt;
    shared = type;
  }
  return shared;
}

Tensor Simulator::run_unit(int unit, const Tensor& input) {
  const auto index = static_cast<size_t>(unit);
  const std::optional<meta::Type> type = input_types_[index];
  const bool is_cast = type && is_floating(input.scalar_type());
  const Tensor output = [&] {
    std::vector<Tensor> weights;
    for (const int parameter : spec_.units[index].parameters) {
      weights.push_back(state_.weight(parameter));
    }
    return units_[index](is_cast ? input.to(*type) : input, weights);
  }();
  return compute_dtype_ ? output.to(meta::type_of(*compute_dtype_)) : output;
}

void Simulator::forward(const Action& action) {
  const auto unit = static_cast<size_t>(action.unit);
  const UnitPlan& plan = plans_[unit];
  const bool keeps_graph = plan.trains && !plan.recomputed;
  const meta::GradMode grad_mode(device_, keeps_graph);
  Tensor input = std::move(carried_);
  if (keeps_graph) input = input.detach().requires_grad_(plan.passes_back);
  const Tensor output = run_unit(action.unit, input);
  carried_ = output.detach();
  if (keeps_graph || plan.begins_run) inputs_[unit] = std::move(input);
  if (keeps_graph) outputs_[unit] = {output.edge(), output.scalar_type()};
}

void Simulator::recompute(const Action& action) {
  const auto unit = static_cast<size_t>(action.unit);
  const UnitPlan& plan = plans_[unit];
  const Tensor& kept = plan.begins_run ? inputs_[unit] : recomputed_;
  Tensor input = kept.detach().requires_grad_(plan.passes_back);
  const Tensor output = run_unit(action.unit, input);
  inputs_[unit] = std::move(input);
  outputs_[unit] = {output.edge(), output.scalar_type()};
  recomputed_ = output.detach();
}

void Simulator::compute_loss() {
  if (output_dtype_) carried_ = carried_.to(meta::type_of(*output_dtype_));
  if (!trains_) {
    logits_ = std::move(carried_);
    loss_ = meta::loss(spec_, logits_);
    return;
  }
  const Tensor weight = scale_.loss_gradient(schedule_->microbatches);
  auto [loss, gradient] = meta::loss_and_gradient(spec_, std::move(carried_), weight);
  carried_ = std::move(gradient);
  if (schedule_->microbatches > 1) loss = meta::with_number(device_, {}, meta::Type::fp32);
  loss_ = loss_.defined() ? meta::add(loss_, loss) : loss;
}

// ---- backward -----------------------------------------------------------------------------------

void Simulator::backward(const Action& action) {
  const bool continues = segment_.unit == action.unit;
  begin_segment(action);
  if (!continues) run_autograd(action.unit);
}

void Simulator::begin_segment(const Action& action) {
  segment_ = {
      .action = current_, .unit = action.unit, .group = action.group, .bucket = action.bucket};
  if (action.bucket < 0) return;
  const Bucket& bucket = schedule_->bucket_of(action);
  segment_.missing = bucket.gradients_of(spec_.units[static_cast<size_t>(action.unit)]);
  for (const BucketEntry& entry : bucket.entries) {
    if (gradients_[static_cast<size_t>(entry.parameter)].early) store_gradient(entry.parameter);
  }
}

void Simulator::run_autograd(int unit) {
  const auto index = static_cast<size_t>(unit);
  const auto [output, type] = std::exchange(outputs_[index], {});
  recomputed_ = {};
  {
    const Tensor gradient = std::exchange(carried_, {});
    // Autograd wants the first gradient in the output's dtype.
    meta::run_backward(device_, output, gradient.to(type));
  }
  if (segment_.unit != unit || segment_.missing > 0) {
    throw std::logic_error("a unit's backward has left out a gradient");
  }
  if (segment_.bucket < 0) finish(segment_.action);
  carried_ = inputs_[index].leaf() ? inputs_[index].leaf()->gradient : Tensor();
  inputs_[index] = {};
  memory_.timeline.end_action(segment_.action);
  segment_ = {};
}

std::optional<Tensor> Simulator::place_for(const meta::Leaf& leaf) {
  const int parameter = state_.parameter_of(leaf);
  if (parameter < 0 || segment_.bucket < 0) return std::nullopt;
  const ParameterPlace& place = state_.place(parameter);
  Gradient& gradient = gradients_[static_cast<size_t>(parameter)];
  const bool is_turn = place.group == segment_.group && place.bucket == segment_.bucket;
  if (!is_turn || gradient.stored || gradient.placed) return std::nullopt;
  const Tensor& weight = state_.weight(parameter);
  if (meta::type_of(schedule_->reduce_dtype) != weight.scalar_type()) return std::nullopt;
  gradient.placed = true;
  return Tensor::placed(device_, weight.sizes(), weight.scalar_type());
}

void Simulator::on_gradient(int parameter) {
  const ParameterPlace& place = state_.place(parameter);
  Gradient& gradient = gradients_[static_cast<size_t>(parameter)];
  const Tensor& came = state_.weight(parameter).leaf()->gradient;
  if (!gradient.placed && came.storage()) {
    memory_.timeline.recategorise(came.storage()->block(), Category::gradient);
  }
  if (place.group != segment_.group || place.bucket != segment_.bucket) {
    gradient.early = true;
    return;
  }
  store_gradient(parameter);
  continue_unit();
}

void Simulator::store_gradient(int parameter) {
  state_.weight(parameter).leaf()->gradient = {};
  gradients_[static_cast<size_t>(parameter)] = {.stored = true};
  --segment_.missing;
}

void Simulator::continue_unit() {
  while (segment_.missing == 0) {
    finish(segment_.action);
    const std::optional<int> next = next_segment(segment_.unit);
    if (!next) return;
    memory_.timeline.end_action(segment_.action);
    while (next_ <= *next) execute(next_++);
  }
}

std::optional<int> Simulator::next_segment(int unit) const {
  for (int id = next_; id < schedule_->size(); ++id) {
    const Action& action = schedule_->action(id);
    if (action.kind != ActionKind::backward) continue;
    if (action.unit != unit) return std::nullopt;
    return id;
  }
  return std::nullopt;
}

// ---- the step -----------------------------------------------------------------------------------

void Simulator::clip(const Action& action) {
  if (action.group < 0) return scale_.finish();
  if (action.stream == Stream::host && device_.is_cuda()) return;  // beside the device
  scale_.add(schedule_->shard_numel(schedule_->bucket_of(action)), schedule_->reduce_dtype);
}

/// Copies what the host's steps need to know of the gradients' norm; the copies are kept from then
/// on.
void Simulator::copy_scalars(const Action& action) {
  if (action.group >= 0) return;
  const auto keep = [&](std::shared_ptr<meta::Storage>& copy) {
    if (!copy) copy = std::make_shared<meta::Storage>(memory_.pinned, bytes_of(kMasterDType));
  };
  keep(host_divisor_);
  if (scale_.overflows()) keep(host_overflowed_);
}

void Simulator::optimizer_step(const Action&) {
  if (std::exchange(is_counted_, true)) return;
  meta::in_place_with_number(device_, meta::Type::fp32);
}

// ---- clipping and the loss scale ----------------------------------------------------------------

SimulatedScale::SimulatedScale(const Config& config, const RankMemory& memory)
    : clip_norm_(config.clip_norm), device_(memory.device) {
  const LossScale scale = loss_scale_of(config);
  if (scale.kind == LossScale::Kind::none) return;
  const TimelineScope scope(memory.timeline, Category::optimizer_state, "loss scale");
  scale_ = scalar();
  if (scale.kind == LossScale::Kind::dynamic) {
    steps_without_overflow_ = meta::pointwise(device_, {}, meta::Type::int32);
  }
}

Tensor SimulatedScale::scalar() const { return meta::pointwise(device_, {}, meta::Type::fp32); }

Tensor SimulatedScale::scalar_with_number() const {
  return meta::with_number(device_, {}, meta::Type::fp32);
}

Tensor SimulatedScale::loss_gradient(int microbatches) const {
  if (scales()) return scalar_with_number();
  return microbatches > 1 ? scalar() : Tensor();
}

void SimulatedScale::add(int64_t numel, DType dtype) const {
  const Tensor gradient = Tensor::placed(device_, {numel}, meta::type_of(dtype));
  const Tensor norm = meta::vector_norm(gradient);
}

void SimulatedScale::begin_step() {
  divisor_ = {};
  overflowed_ = {};
}

void SimulatedScale::finish() {
  const auto flag = [&] { return meta::pointwise(device_, {}, meta::Type::boolean); };
  const Tensor total = scalar_with_number();
  norm_ = scalar();
  if (scales()) norm_ = scalar();
  divisor_ = scalar();
  if (clip_norm_ > 0) {
    const Tensor above_zero = scalar_with_number();
    const Tensor share = scalar();
    const Tensor clamped = scalar();
  }
  if (!scales()) return;
  const Tensor finite = [&] {
    const meta::OperatorCall call(device_);
    const Tensor size = scalar();
    const Tensor is_bounded = meta::compared_with_number(device_, {}, meta::Type::fp32);
    const Tensor is_number = flag();
    return flag();
  }();
  overflowed_ = scalar();
}

}  // namespace shardlens::planner
