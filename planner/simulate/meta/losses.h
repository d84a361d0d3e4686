// The loss and its gradient without values, as models/loss.cpp computes them.
#pragma once

#include "models/spec.h"
#include "planner/simulate/meta/tensor.h"

namespace shardlens::planner::meta {

struct MetaLossAndGradient {
  Tensor loss;
  Tensor gradient;
};

/// Computes models::loss. The memory that it takes does not depend on the targets.
Tensor loss(const models::ModelSpec& spec, const Tensor& logits);

/// Computes models::loss_and_gradient; `weight` may be undefined.
MetaLossAndGradient loss_and_gradient(const models::ModelSpec& spec, Tensor logits,
                                      const Tensor& weight);

}  // namespace shardlens::planner::meta
