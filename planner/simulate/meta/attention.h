// Scaled dot-product attention without values: chooses LibTorch's kernel and takes its memory.
#pragma once

#include "planner/simulate/meta/tensor.h"

namespace shardlens::planner::meta {

enum class AttentionKernel { flash, efficient, math };

struct AttentionOptions {
  bool causal = false;
  bool grouped = false;  // fewer key and value heads than query heads
};

/// Chooses a kernel by the rules of LibTorch's sdp_utils, without cuDNN's kernel. Throws
/// std::invalid_argument if no allowed kernel takes these tensors: what, why, how to fix it.
AttentionKernel choose_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                                 const AttentionOptions& options);

/// Computes attention without dropout or mask: query [B, H, T, E], key and value [B, K, S, E] ->
/// [B, H, T, E].
Tensor attention(const Tensor& query, const Tensor& key, const Tensor& value,
                 const AttentionOptions& options);

/// Returns each entry along `dim` `repeats` times, one after another.
Tensor repeat_interleave(const Tensor& input, int64_t repeats, int64_t dim);

}  // namespace shardlens::planner::meta
