#include "runtime/gradient_scale.h"

#include <ATen/ATen.h>

#include "profiler/recorder.h"

namespace shardlens::runtime {

GradientScale::GradientScale(const GradientScaleOptions& options, const c10::Device& device)
    : options_(options), scalar_(at::dtype(at::kFloat).device(device)) {
  if (!scales()) return;
  const profiler::Scope scope(profiler::Category::optimizer_state, "loss scale");
  scale_ = at::full({}, options.loss_scale.value, scalar_);
  if (options.loss_scale.kind == planner::LossScale::Kind::dynamic) {
    steps_without_overflow_ = at::zeros({}, scalar_.dtype(at::kInt));
  }
}

at::Tensor GradientScale::loss_gradient(int microbatches) const {
  if (!scales() && microbatches == 1) return {};
  const double share = 1.0 / microbatches;
  return scales() ? scale_ * share : at::full({}, share, scalar_);
}

std::optional<LossScaleState> GradientScale::state() const {
  if (!steps_without_overflow_.defined()) return std::nullopt;
  return LossScaleState{scale_.item<double>(), steps_without_overflow_.item<int64_t>()};
}

void GradientScale::restore(const LossScaleState& state) {
  if (!steps_without_overflow_.defined()) return;
  scale_.fill_(state.scale);
  steps_without_overflow_.fill_(state.steps_without_overflow);
}

void GradientScale::add(const at::Tensor& gradient, double weight, const at::Tensor& sum) const {
  const at::Tensor norm = at::linalg_vector_norm(gradient, 2, std::nullopt, false, at::kFloat);
  sum.addcmul_(norm, norm, weight);
}

void GradientScale::finish(const at::Tensor& sum, double weight, StepScalars& scalars) {
  constexpr double kTiny = 1e-6;  // as in torch.nn.utils.clip_grad_norm_
  constexpr double kGrowth = 2, kBackoff = 0.5;
  constexpr int64_t kGrowthSteps = 2000;
  const at::Tensor total = sum.squeeze() * weight;
  norm_ = total.sqrt();
  if (scales()) norm_ = norm_ / scale_;
  scalars.divisor = scales() ? scale_.clone() : at::ones({}, scalar_);
  if (options_.clip_norm > 0) {
    scalars.divisor.div_(at::clamp_max(options_.clip_norm / (norm_ + kTiny), 1.0));
  }
  if (!scales()) return;
  scalars.overflowed = at::isfinite(total).logical_not_().to(at::kFloat);
  if (!steps_without_overflow_.defined()) return;
  at::_amp_update_scale_(scale_, steps_without_overflow_, scalars.overflowed, kGrowth, kBackoff,
                         kGrowthSteps);
}

}  // namespace shardlens::runtime
