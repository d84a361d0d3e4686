// Scaled dot-product attention without values: which kernel LibTorch chooses, and what it takes.
#pragma once

#include "planner/meta/tensor.h"

namespace shardlens::planner::meta {

enum class AttentionKernel { flash, efficient, math };

struct AttentionOptions {
  bool causal = false;
  bool grouped = false;  // fewer key and value heads than query heads
};

/// By the rules of LibTorch's sdp_utils, cuDNN's kernel left out; throws std::invalid_argument
/// where no allowed kernel takes these tensors: what, why, how to mend.
AttentionKernel choose_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                                 const AttentionOptions& options);

/// Every index along `dim` so many times, one after the other.
Tensor repeat_interleave(const Tensor& input, int64_t repeats, int64_t dim);

/// query [B, H, T, E], key and value [B, K, S, E], no dropout, no mask -> [B, H, T, E]
Tensor attention(const Tensor& query, const Tensor& key, const Tensor& value,
                 const AttentionOptions& options);

/// Each entry along `dim` `repeats` times, one after another.
Tensor repeat_interleave(const Tensor& input, int64_t repeats, int64_t dim);

}  // namespace shardlens::planner::meta
