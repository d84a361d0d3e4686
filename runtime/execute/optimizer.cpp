#include "runtime/execute/optimizer.h"

#include <ATen/ATen.h>

#include <optional>

namespace shardlens::runtime {

namespace {

constexpr bool kMaximize = false;
constexpr bool kAmsgrad = false;

std::optional<at::Tensor> if_defined(const at::Tensor& tensor) {
  return tensor.defined() ? std::optional(tensor) : std::nullopt;
}

void step_adam(const planner::OptimizerOptions& options, BucketState& bucket,
               const at::Tensor& gradient, const StepScalars& scalars) {
  const auto step = [&](auto fused) {
    fused(at::TensorList(bucket.master), at::TensorList(gradient),
          at::TensorList(bucket.moments[0]), at::TensorList(bucket.moments[1]), at::TensorList{},
          at::TensorList(scalars.count), options.lr, options.beta1, options.beta2,
          options.weight_decay, options.eps, kAmsgrad, kMaximize, if_defined(scalars.divisor),
          if_defined(scalars.overflowed));
  };
  if (options.kind == planner::OptimizerKind::adamw) {
    step([](auto&&... arguments) { at::_fused_adamw_(arguments...); });
  } else {
    step([](auto&&... arguments) { at::_fused_adam_(arguments...); });
  }
}

void step_sgd(const planner::OptimizerOptions& options, BucketState& bucket,
              const at::Tensor& gradient, const StepScalars& scalars) {
  constexpr double kDampening = 0;
  constexpr bool kNesterov = false;
  // The buffer begins at zero, so a first step is like any other.
  constexpr bool kIsFirst = false;
  at::_fused_sgd_({bucket.master}, {gradient}, bucket.moments, options.weight_decay,
                  options.momentum, options.lr, kDampening, kNesterov, kMaximize, kIsFirst,
                  if_defined(scalars.divisor), if_defined(scalars.overflowed));
}

}  // namespace

void step_bucket(const planner::OptimizerOptions& options, BucketState& bucket,
                 const at::Tensor& gradient, const StepScalars& scalars) {
  if (options.kind == planner::OptimizerKind::sgd) {
    step_sgd(options, bucket, gradient, scalars);
  } else {
    step_adam(options, bucket, gradient, scalars);
  }
}

}  // namespace shardlens::runtime
