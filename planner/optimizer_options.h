// What an optimizer is set to, and what it keeps; how it steps is runtime/optimizer.h's.
#pragma once

#include <vector>

#include "planner/strategy.h"

namespace shardlens::planner {

struct OptimizerOptions {
  OptimizerKind kind = OptimizerKind::adam;
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;
  double momentum = 0;  // of sgd
};

/// What a configuration says of them.
OptimizerOptions optimizer_options(const Config& config);

/// Names of what the optimizer keeps beside each weight, as PyTorch calls it.
std::vector<const char*> moments_of(const OptimizerOptions& options);

}  // namespace shardlens::planner
