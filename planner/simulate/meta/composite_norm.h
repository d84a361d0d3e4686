// RMS norm for the CPU, where LibTorch has no kernel for it: one operator after another, each with
// its own node. Also the memory that such operators take for a number among their operands.
#pragma once

#include "planner/simulate/meta/tensor.h"

namespace shardlens::planner::meta {

/// Computes fp32 `input` times a number, or plus a number, or divided by one: all take the same
/// memory.
Tensor with_number(const Tensor& input);

Tensor composite_rms_norm(const Tensor& input, const Tensor& weight);

}  // namespace shardlens::planner::meta
