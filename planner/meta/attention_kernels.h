// The kernels behind attention.h, one function each: what it takes, keeps and gives back. All take
// query [B, H, T, E], key and value [B, K, S, E]; the result [B, H, T, E] has its edge.
#pragma once

#include "planner/meta/attention.h"
#include "planner/meta/tensor.h"

namespace shardlens::planner::meta {

/// CUDA, reduced precision. Head widths that are no multiple of 8 are padded, outside of its node.
Tensor flash_attention(const Tensor& query, const Tensor& key, const Tensor& value);

/// CUDA.
Tensor efficient_attention(const Tensor& query, const Tensor& key, const Tensor& value);

/// CPU.
Tensor cpu_flash_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                           const AttentionOptions& options);

/// Matrix products and a softmax, which write all scores.
Tensor math_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                      const AttentionOptions& options);

}  // namespace shardlens::planner::meta
