// torch.amp.GradScaler without values: the numbers on the device by which fp16 gradients are kept
// from underflow, and those that each step makes in between. Names are those of
// torch/amp/grad_scaler.py.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "planner/simulate/meta/tensor.h"

namespace shardlens::planner {

/// Scales the loss of one step after another. In a step call scale() once per microbatch, unscale()
/// if the loop clips, then step() and update(). No number is ever found to be infinite, so no step
/// is skipped.
class PytorchScaler {
 public:
  struct Options {
    bool is_fused = false;            // the optimizer's kernel unscales the gradients itself
    bool gradients_on_device = true;  // else CPU offload has taken them to the host
    int shards = 1;                   // ranks that must agree whether a gradient overflowed
  };

  /// Creates the scaler. Borrows the context.
  PytorchScaler(meta::Context& context, const Options& options)
      : context_(context), options_(options) {}

  /// Returns the loss times the scale. The first call makes the scale and the count of good steps.
  meta::Tensor scale(const meta::Tensor& loss);
  /// Divides the gradients by the scale, and keeps until update() whether one of them overflowed.
  void unscale();
  void step(const std::function<void()>& optimizer_step);
  void update();

 private:
  using Block = std::shared_ptr<meta::Storage>;

  Block take(meta::Type type);
  void take_and_release(meta::Type type);
  void check_gradients();
  void step_fused(const std::function<void()>& optimizer_step);

  meta::Context& context_;
  Options options_;
  meta::Tensor scale_;
  Block growth_tracker_;
  Block found_inf_;           // the copy beside the gradients
  bool is_unscaled_ = false;  // unscale() ran since the last update()
};

}  // namespace shardlens::planner
