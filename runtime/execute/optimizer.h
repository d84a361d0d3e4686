// Applies a gradient to a bucket: one fused LibTorch call for every optimizer.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "planner/config/optimizer_options.h"
#include "planner/step/gradient_scale.h"

namespace shardlens::runtime {

/// Holds this rank's range of one bucket: each 1D of the same length, master and moments fp32.
struct BucketState {
  at::Tensor master;
  std::vector<at::Tensor> moments;  // see moments_of; empty if the bucket is frozen
  // These two differ under offload. Without offload, or if the dtype is the same, each is the same
  // tensor as the one before it.
  at::Tensor cast;        // beside the master, in the parameters' dtype
  at::Tensor parameters;  // what gathers take: the cast, or its copy on the device
};

using StepScalars = planner::StepScalars<at::Tensor>;

/// Takes one step on the bucket. `gradient` is fp32, and is divided in place.
void step_bucket(const planner::OptimizerOptions& options, BucketState& bucket,
                 const at::Tensor& gradient, const StepScalars& scalars);

}  // namespace shardlens::runtime
