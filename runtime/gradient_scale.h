// What stands between gradients and optimizer where it must know them all first: clipping by their
// global norm, and the scale of the loss. Nothing here reads a value on the host.
//
// The loss is multiplied by the scale before it goes back. With the sum of squares of all scaled
// gradients, a step divides them by scale / min(1, clip_norm / norm), or does nothing where the sum
// is not finite. A dynamic scale then halves, or doubles after 2,000 steps without overflow, as
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
  /// Scalars on `device`.
  GradientScale(const GradientScaleOptions& options, const c10::Device& device);

  /// What the gradient of a microbatch's loss is; undefined: 1.
  at::Tensor loss_gradient(int microbatches) const;

  /// Adds weight x (sum of squares) to `sum`, an fp32 tensor of one element.
  void add(const at::Tensor& gradient, double weight, const at::Tensor& sum) const;

  /// From the sum of squares of all gradients, times `weight`: fills the scalars of the step's
  /// optimizer, and adapts the scale for the next step.
  void finish(const at::Tensor& sum, double weight, StepScalars& scalars);

  /// Of the last finished step, unscaled and before it was clipped; fp32 scalar, undefined: none.
  const at::Tensor& norm() const { return norm_; }
  /// fp32 scalar; undefined: the loss is not scaled.
  const at::Tensor& scale() const { return scale_; }

  /// Of a scale that adapts itself; waits for the device.
  std::optional<LossScaleState> state() const;
  /// Does nothing where the scale does not adapt itself.
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
