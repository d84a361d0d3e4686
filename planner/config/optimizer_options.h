// The settings of an optimizer and the state that it keeps; runtime/execute/optimizer.h says how it
// steps.
#pragma once

#include <vector>

#include "planner/config/config.h"

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

/// Reads the optimizer's settings from a configuration.
OptimizerOptions optimizer_options(const Config& config);

/// Returns PyTorch's names of the tensors that the optimizer keeps beside each weight.
std::vector<const char*> moments_of(const OptimizerOptions& options);

}  // namespace shardlens::planner
