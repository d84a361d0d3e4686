// Does what needs all gradients before the optimizer's step: clipping by their global norm, and
// scaling the loss. Nothing here reads a value on the host, except state().
//
// The loss is multiplied by the scale before its backward. With the sum of squares of all scaled
// gradients, a step divides them by scale / min(1, clip_norm / norm), or does nothing if the sum is
// not finite. A dynamic scale then halves, or doubles after 2,000 steps without overflow, as
// PyTorch's GradScaler does.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "planner/strategy.h"
#include "runtime/checkpoint.h"
#include "runtime/optimizer.h"

namespace shardlens::runtime {

struct GradientScaleOptions {
  double clip_norm = 0;  // 0: no clipping
  planner::LossScale loss_scale;
};

class GradientScale {
 public:
  /// Allocates its scalars on `device`.
  GradientScale(const GradientScaleOptions& options, const c10::Device& device);

  /// Returns the gradient with which the backward of a microbatch's loss starts; undefined: 1.
  at::Tensor loss_gradient(int microbatches) const;

  /// Adds weight x (sum of squares) to `sum`, an fp32 tensor of one element.
  void add(const at::Tensor& gradient, double weight, const at::Tensor& sum) const;

  /// Fills the scalars of the step's optimizer, and adapts the scale for the next step. `sum` times
  /// `weight` is the sum of squares of all gradients.
  void finish(const at::Tensor& sum, double weight, StepScalars& scalars);

  /// The gradient norm of the last finished step, unscaled and before clipping; fp32 scalar.
  /// Undefined: none.
  const at::Tensor& norm() const { return norm_; }
  /// The loss scale, an fp32 scalar. Undefined: the loss is not scaled.
  const at::Tensor& scale() const { return scale_; }

  /// Returns the state of a scale that adapts itself, or nothing. Waits for the device.
  std::optional<LossScaleState> state() const;
  /// Sets the state of a scale that adapts itself. Does nothing with any other scale.
  void restore(const LossScaleState& state);

 private:
  bool scales() const { return options_.loss_scale.kind != planner::LossScale::Kind::none; }

  GradientScaleOptions options_;
  at::TensorOptions scalar_;
  at::Tensor scale_;
  at::Tensor steps_without_overflow_;  // int32 scalar
  at::Tensor norm_;
};

}  // namespace shardlens::runtime
