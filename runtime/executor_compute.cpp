// Defines the actions that compute: units forward and backward, and the loss.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "runtime/check.h"
#include "runtime/executor.h"
#include "runtime/scalar_type.h"

namespace shardlens::runtime {

using planner::Action;
using planner::ActionKind;
using planner::Bucket;
using profiler::Category;

namespace {

struct GradientHook : torch::autograd::PostAccumulateGradHook {
  explicit GradientHook(std::function<void()> call) : call(std::move(call)) {}
  void operator()(const at::Tensor&) override { call(); }
  std::function<void()> call;
};

}  // namespace

void Executor::install_hooks() {
  for (size_t i = 0; i < spec_.parameters.size(); ++i) {
    const int parameter = static_cast<int>(i);
    if (!state_.weight(parameter).requires_grad()) continue;
    torch::autograd::impl::set_post_acc_grad_hooks(
        state_.weight(parameter),
        std::make_unique<GradientHook>([this, parameter] { on_gradient(parameter); }));
  }
}

void Executor::bind_weights(const Action& action) {
  if (!action.reads.empty() && !state_.is_bound(action.group)) {
    state_.bind(action.group, action.reads.front());
  }
}

std::vector<at::Tensor> Executor::unit_weights(int unit) const {
  std::vector<at::Tensor> weights;
  for (const int parameter : spec_.units[unit].parameters) {
    weights.push_back(state_.weight(parameter));
  }
  return weights;
}

/// Returns the dtype of the unit's parameters, or nothing if they have several: then its code knows
/// which one it wants.
std::optional<at::ScalarType> Executor::input_dtype(int unit) const {
  std::optional<at::ScalarType> shared;
  for (const int parameter : spec_.units[unit].parameters) {
    const at::ScalarType dtype = state_.weight(parameter).scalar_type();
    if (shared.value_or(dtype) != dtype) return std::nullopt;
    shared = dtype;
  }
  return shared;
}

at::Tensor Executor::run_unit(int unit, const at::Tensor& input) {
  const std::optional<at::ScalarType> dtype = input_dtypes_[unit];
  const bool is_cast = dtype && at::isFloatingType(input.scalar_type());
  const at::Tensor output = units_[unit](is_cast ? input.to(*dtype) : input, unit_weights(unit));
  return options_.compute_dtype ? output.to(scalar_type(*options_.compute_dtype)) : output;
}

void Executor::forward(const Action& action) {
  bind_weights(action);
  const planner::UnitPlan& plan = plans_[action.unit];
  const bool keeps_graph = plan.trains && !plan.recomputed;
  const at::AutoGradMode grad_mode(keeps_graph);
  // This is the boundary: the backward of this unit ends here and hands its gradient on.
  at::Tensor input = std::move(carried_);
  if (keeps_graph) input = input.detach().requires_grad_(plan.passes_back);
  const at::Tensor output = run_unit(action.unit, input);
  carried_ = output.detach();
  if (keeps_graph || plan.begins_run) inputs_[action.unit] = std::move(input);
  // This keeps an edge, not the tensor, because the loss may free the logits.
  if (keeps_graph) outputs_[action.unit] = torch::autograd::impl::gradient_edge(output);
}

void Executor::recompute(const Action& action) {
  bind_weights(action);
  const planner::UnitPlan& plan = plans_[action.unit];
  const at::Tensor& kept = plan.begins_run ? inputs_[action.unit] : recomputed_;
  at::Tensor input = kept.detach().requires_grad_(plan.passes_back);
  const at::Tensor output = run_unit(action.unit, input);
  inputs_[action.unit] = std::move(input);
  outputs_[action.unit] = torch::autograd::impl::gradient_edge(output);
  recomputed_ = output.detach();
}

void Executor::compute_loss() {
  if (options_.output_dtype) carried_ = carried_.to(scalar_type(*options_.output_dtype));
  if (!trains_) {
    logits_ = std::move(carried_);
    loss_ = options_.loss ? options_.loss(logits_, batch_.targets)
                          : models::loss(spec_, logits_, batch_.targets);
    return;
  }
  const at::Tensor weight = gradient_scale_.loss_gradient(schedule_->microbatches);
  auto [loss, gradient] =
      options_.loss ? models::loss_and_gradient(options_.loss, carried_, batch_.targets, weight)
                    : models::loss_and_gradient(spec_, std::move(carried_), batch_.targets, weight);
  carried_ = std::move(gradient);
  if (schedule_->microbatches > 1) loss = loss / schedule_->microbatches;
  loss_ = loss_.defined() ? loss_ + loss : loss;
}

void Executor::backward(const Action& action) {
  const bool continues = segment_.unit == action.unit;
  bind_weights(action);
  begin_segment(action);
  if (!continues) run_autograd(action.unit);
}

void Executor::begin_segment(const Action& action) {
  segment_ = {
      .action = current_, .unit = action.unit, .group = action.group, .bucket = action.bucket};
  if (action.bucket < 0) return;  // the unit trains nothing, and passes on
  const Bucket& bucket = schedule_->bucket_of(action);
  segment_.slot = action.writes.front();
  segment_.missing = bucket.gradients_of(spec_.units[action.unit]);
  const auto& entries = bucket.entries;
  const bool first = std::none_of(entries.begin(), entries.end(), [&](const auto& entry) {
    return gradients_[entry.parameter].stored;
  });
  if (first) state_.zero_padding(action.group, action.bucket, segment_.slot);
  for (const planner::BucketEntry& entry : entries) {
    if (gradients_[entry.parameter].early) store_gradient(entry.parameter);
  }
}

void Executor::run_autograd(int unit) {
  const torch::autograd::Edge output = std::exchange(outputs_[unit], {});
  recomputed_.reset();
  try {
    const profiler::UnobservedBackward unobserved;
    const models::GradientPlaces places(
        [this](const at::Tensor& weight) { return place_for(weight); });
    torch::autograd::Engine::get_default_engine().execute(
        {output}, {std::exchange(carried_, {})}, /*keep_graph=*/false, /*create_graph=*/false,
        /*accumulate_grad=*/true);
  } catch (...) {
    // Autograd may wrap what a hook throws; the caller wants the error itself.
    if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
    throw;
  }
  if (segment_.missing > 0) refuse_unused(unit);
  check(segment_.unit == unit && !next_segment(unit), "a unit's backward has left out a segment");
  if (segment_.bucket < 0) finish(segment_.action);  // no gradient does
  carried_ = inputs_[unit].grad();
  inputs_[unit].reset();
  end_action(segment_.action);
  segment_ = {};
}

void Executor::refuse_unused(int unit) const {
  std::vector<std::string_view> all, unused;
  for (const int parameter : spec_.units[unit].parameters) {
    const Place& place = state_.place(parameter);
    if (place.group != segment_.group || place.bucket != segment_.bucket) continue;
    all.push_back(spec_.parameters[parameter].name);
    if (!gradients_[parameter].stored) unused.push_back(all.back());
  }
  // A parameter that another unit uses too has a gradient already.
  const auto& names = unused.empty() ? all : unused;
  throw std::invalid_argument(fmt::format(
      "unit {}: no gradient came for {}, so its forward does not use it; leave it out of the unit, "
      "or give --freeze '{}'",
      spec_.units[unit].name, fmt::join(names, ", "), fmt::join(names, "|")));
}

/// Returns a gradient's range of the reduce slot, if it comes in its bucket's turn, is the first
/// there and needs no cast.
at::Tensor Executor::place_for(const at::Tensor& weight) {
  const std::optional<int> parameter = state_.find_weight(weight);
  if (!parameter || segment_.bucket < 0) return {};
  const Place& place = state_.place(*parameter);
  Gradient& gradient = gradients_[*parameter];
  const bool is_turn = place.group == segment_.group && place.bucket == segment_.bucket;
  if (!is_turn || gradient.stored || gradient.placed) return {};
  const at::Tensor& range = state_.gradient(*parameter, segment_.slot);
  if (range.scalar_type() != weight.scalar_type()) return {};
  gradient.placed = true;
  return range.detach();  // a tensor of its own: autograd takes only unshared ones
}

void Executor::on_gradient(int parameter) {
  const at::NoGradGuard no_grad;
  try {
    const Place& place = state_.place(parameter);
    if (recorder_ != nullptr && !gradients_[parameter].placed) {
      recorder_->recategorise(space_, state_.weight(parameter).grad().data_ptr(),
                              Category::gradient);
    }
    if (place.group != segment_.group || place.bucket != segment_.bucket) {
      gradients_[parameter].early = true;
      return;
    }
    store_gradient(parameter);
    continue_unit();
  } catch (...) {
    failure_ = std::current_exception();
    throw;
  }
}

void Executor::store_gradient(int parameter) {
  at::Tensor& gradient = state_.weight(parameter).mutable_grad();
  const at::Tensor& range = state_.gradient(parameter, segment_.slot);
  if (gradients_[parameter].stored) {
    range.add_(gradient);
  } else if (gradient.data_ptr() != range.data_ptr()) {
    range.copy_(gradient);
  }
  gradient.reset();
  gradients_[parameter] = {.stored = true, .early = false};
  --segment_.missing;
}

/// Runs the schedule up to the unit's next segment, as often as a segment is already complete.
void Executor::continue_unit() {
  while (segment_.missing == 0) {
    finish(segment_.action);
    const std::optional<int> next = next_segment(segment_.unit);
    if (!next) return;  // the input's gradient may still come
    end_action(segment_.action);
    while (next_ <= *next) execute(next_++);
  }
}

std::optional<int> Executor::next_segment(int unit) const {
  for (int id = next_; id < schedule_->size(); ++id) {
    const Action& action = schedule_->action(id);
    if (action.kind != ActionKind::backward) continue;
    if (action.unit != unit) return std::nullopt;
    return id;
  }
  return std::nullopt;
}

}  // namespace shardlens::runtime
