// What applies a gradient to a bucket: one fused call of LibTorch's, whatever the optimizer.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "planner/optimizer_options.h"

namespace shardlens::runtime {

/// This rank's range of one bucket: each 1D of the same length, master and moments fp32.
struct BucketState {
  at::Tensor master;
  std::vector<at::Tensor> moments;  // see moments_of; none where the bucket is frozen
  // Under offload; without, and where one is like the other, the same tensor as the one before.
  at::Tensor cast;        // beside the master, in the parameters' dtype
  at::Tensor parameters;  // what gathers take: the cast, or a copy of it on the device
};

/// What all steps of a pass share, scalars in fp32 beside the masters.
struct StepScalars {
  at::Tensor count;       // of steps, this one included
  at::Tensor divisor;     // of gradients; undefined: 1
  at::Tensor overflowed;  // 1: leave everything as it is; undefined: never
};

/// `gradient` is fp32, and is divided in place.
void step_bucket(const planner::OptimizerOptions& options, BucketState& bucket,
                 const at::Tensor& gradient, const StepScalars& scalars);

}  // namespace shardlens::runtime
