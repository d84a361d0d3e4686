// Applies a gradient to a bucket: one fused call of LibTorch's, whatever the optimizer.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "planner/config/optimizer_options.h"
#include "planner/step/gradient_scale.h"

namespace shardlens::runtime {

/// Holds this rank's range of one bucket: each 1D of the same length, master and moments fp32.
struct BucketState {
  at::Tensor master;
  std::vector<at::Tensor> moments;  // see moments_of; none where the bucket is frozen
  // These two differ under offload. Without it, or if a dtype is the same, each is the same tensor
  // as the one before it.
  at::Tensor cast;        // beside the master, in the parameters' dtype
  at::Tensor parameters;  // what gathers take: the cast, or a copy of it on the device
};

using StepScalars = planner::StepScalars<at::Tensor>;

/// Takes one step on the bucket. `gradient` is fp32, and is divided in place.
void step_bucket(const planner::OptimizerOptions& options, BucketState& bucket,
                 const at::Tensor& gradient, const StepScalars& scalars);

}  // namespace shardlens::runtime
