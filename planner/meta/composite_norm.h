// RMS norm where LibTorch has no kernel for it, the CPU: one operator after another, each with its
// own node. And what such operators take for a number among their operands.
#pragma once

#include "planner/meta/tensor.h"

namespace shardlens::planner::meta {

/// input in fp32 * a number; or + or /.
Tensor with_number(const Tensor& input);

Tensor composite_rms_norm(const Tensor& input, const Tensor& weight);

}  // namespace shardlens::planner::meta
