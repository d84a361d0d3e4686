// The kernels behind attention.h, one function each: the function takes and keeps the kernel's
// memory and returns its result. All take query [B, H, T, E], key and value [B, K, S, E]; the
// result [B, H, T, E] has its edge.
#pragma once

#include "planner/simulate/meta/attention.h"
#include "planner/simulate/meta/tensor.h"

namespace shardlens::planner::meta {

/// Runs flash attention on CUDA in reduced precision. Head widths that are not a multiple of 8
/// are padded, outside its node.
Tensor flash_attention(const Tensor& query, const Tensor& key, const Tensor& value);

/// Runs memory-efficient attention on CUDA.
Tensor efficient_attention(const Tensor& query, const Tensor& key, const Tensor& value);

/// Runs flash attention on the CPU.
Tensor cpu_flash_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                           const AttentionOptions& options);

/// Computes attention by matrix products and a softmax, which write all scores.
Tensor math_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                      const AttentionOptions& options);

}  // namespace shardlens::planner::meta
