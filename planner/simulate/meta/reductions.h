// Reductions, and the memory that LibTorch's CUDA kernels take to spread one over many blocks.
#pragma once

#include <cstdint>
#include <vector>

#include "planner/simulate/meta/tensor.h"

namespace shardlens::planner::meta {

/// Returns the maxima over `dims`, which stay with size 1.
Tensor amax(const Tensor& input, const std::vector<int64_t>& dims);

/// Returns the 2-norm of all elements in fp32, as at::linalg_vector_norm(input, 2, nullopt, false,
/// kFloat) does.
Tensor vector_norm(const Tensor& input);

}  // namespace shardlens::planner::meta
