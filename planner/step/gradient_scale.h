// Does the work that needs all gradients before the optimizer's step: clipping by their global
// norm, and scaling the loss. Nothing here reads a value on the host.
//
// The loss is multiplied by the scale before its backward. With the sum of squares of all scaled
// gradients, a step divides them by scale / min(1, clip_norm / norm), or does nothing if the sum is
// not finite. A dynamic scale then halves, or doubles after 2,000 steps without overflow, as
// PyTorch's GradScaler does.
//
// `Ops` is a struct of types and static functions:
//   Tensor, with arithmetic as LibTorch's has it
//   Device                                  where scalars lie
//   state_scope(device, label)              while it lives, memory taken belongs to the optimizer
//   full(device, value), zero_count(device) an fp32 scalar, an int32 scalar
//   vector_norm(gradient)                   the 2-norm, in fp32
//   update_scale(scale, steps_without_overflow, overflowed, growth, backoff, growth_steps)
#pragma once

#include <cstdint>

#include "planner/step/step.h"

namespace shardlens::planner {

/// Holds what all optimizer steps of a pass share, as fp32 scalars beside the masters.
template <class Tensor>
struct StepScalars {
  Tensor count;       // of steps, this one included
  Tensor divisor;     // of gradients; undefined: 1
  Tensor overflowed;  // 1: change nothing; undefined: never
};

template <class Ops>
class GradientScale {
 public:
  using Tensor = typename Ops::Tensor;

  /// Allocates its scalars at `device`.
  GradientScale(const GradientScaleOptions& options, const typename Ops::Device& device)
      : options_(options), device_(device) {
    if (!scales()) return;
    const auto scope = Ops::state_scope(device_, "loss scale");
    scale_ = Ops::full(device_, options.loss_scale.value);
    if (options.loss_scale.kind == LossScale::Kind::dynamic) {
      steps_without_overflow_ = Ops::zero_count(device_);
    }
  }

  /// Returns the gradient with which the backward of a microbatch's loss starts; undefined: 1.
  Tensor loss_gradient(int microbatches) const {
    if (!scales() && microbatches == 1) return {};
    const double share = 1.0 / microbatches;
    return scales() ? scale_ * share : Ops::full(device_, share);
  }

  /// Adds weight x (sum of squares) to `sum`, an fp32 tensor of one element.
  void add(const Tensor& gradient, double weight, const Tensor& sum) const {
    const Tensor norm = Ops::vector_norm(gradient);
    sum.addcmul_(norm, norm, weight);
  }

  /// Fills the scalars of the step's optimizer, and adapts the scale for the next step. `sum` times
  /// `weight` is the sum of squares of all gradients.
  void finish(const Tensor& sum, double weight, StepScalars<Tensor>& scalars) {
    constexpr double kTiny = 1e-6;  // as in torch.nn.utils.clip_grad_norm_
    constexpr double kGrowth = 2, kBackoff = 0.5;
    constexpr int64_t kGrowthSteps = 2000;
    const Tensor total = sum.squeeze() * weight;
    norm_ = total.sqrt();
    if (scales()) norm_ = norm_ / scale_;
    scalars.divisor = scales() ? scale_.clone() : Ops::full(device_, 1);
    if (options_.clip_norm > 0) {
      scalars.divisor.div_((options_.clip_norm / (norm_ + kTiny)).clamp_max(1.0));
    }
    if (!scales()) return;
    scalars.overflowed = total.isfinite().logical_not_().to(scale_.scalar_type());
    if (!steps_without_overflow_.defined()) return;
    Ops::update_scale(scale_, steps_without_overflow_, scalars.overflowed, kGrowth, kBackoff,
                      kGrowthSteps);
  }

  /// Returns the gradient norm of the last finished step, unscaled and before clipping; fp32
  /// scalar. Undefined: there is none.
  const Tensor& norm() const { return norm_; }
  /// Returns the loss scale, an fp32 scalar. Undefined: the loss is not scaled.
  const Tensor& scale() const { return scale_; }
  /// Returns for how many steps an adaptive scale has not overflowed, an int32 scalar.
  /// Undefined: the scale, if there is one, is fixed.
  const Tensor& steps_without_overflow() const { return steps_without_overflow_; }

 private:
  bool scales() const { return options_.loss_scale.kind != LossScale::Kind::none; }

  GradientScaleOptions options_;
  typename Ops::Device device_;
  Tensor scale_;
  Tensor steps_without_overflow_;
  Tensor norm_;
};

}  // namespace shardlens::planner
