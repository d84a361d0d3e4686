// The units of each family as code; build_units in model.cpp asks these by the unit's kind.
// Private to models/.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <span>

#include "models/model.h"

namespace shardlens::models {

using Parameters = std::span<const at::Tensor>;

/// Of rotary positions, made at the first use and kept: cosines and sines [seq, 1, head_width / 2].
struct RotaryTable {
  at::Tensor cos;
  at::Tensor sin;
};

// All throw std::logic_error for a kind of another family.
Forward vit_unit(const VitSizes& sizes, UnitKind kind);
Forward llama_unit(const LlamaSizes& sizes, UnitKind kind,
                   const std::shared_ptr<RotaryTable>& table);
Forward mlp_unit(UnitKind kind);
Forward transformer_unit(UnitKind kind);

/// Over the last dimension, in the weight's dtype; the result is as the input.
at::Tensor layer_norm(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias,
                      double eps);

/// ids [B, T] and one matrix [vocab, D] -> [B, T, D]
at::Tensor embed_tokens(const at::Tensor& ids, Parameters p);

}  // namespace shardlens::models
