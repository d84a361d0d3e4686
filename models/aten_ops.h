// Wraps LibTorch's tensors for the units of models/units.h. Private to models/.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "models/llama.h"
#include "models/spec.h"
#include "models/torch_rules.h"

namespace shardlens::models {

/// The table of rotary positions, made at the first use and kept: cosines and sines [seq, 1,
/// head_width / 2].
struct RotaryTable {
  at::Tensor cos;
  at::Tensor sin;
};

struct AtenOps {
  using Tensor = at::Tensor;
  using RotaryTable = models::RotaryTable;
  static constexpr at::ScalarType kFloat = at::kFloat;
  static const TorchRules& torch_rules(const at::Tensor&) { return own_torch_rules(); }

  static at::Tensor linear(const at::Tensor& input, const at::Tensor& weight,
                           const at::Tensor& bias, InputUse use = InputUse::kept);
  static at::Tensor project(const at::Tensor& input, const at::Tensor& weight,
                            InputUse use = InputUse::kept);
  static at::Tensor layer_norm(const at::Tensor& input, const at::Tensor& weight,
                               const at::Tensor& bias, double eps);
  static at::Tensor rms_norm(const at::Tensor& input, const at::Tensor& weight, double eps);
  static at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                              bool causal);
  static at::Tensor gelu(const at::Tensor& input);
  static at::Tensor cat(const std::vector<at::Tensor>& parts, int64_t dim);
  static at::Tensor repeat_interleave(const at::Tensor& input, int64_t repeats, int64_t dim);
  /// Looks up ids [B, T] in one matrix [vocab, D] -> [B, T, D].
  static at::Tensor embedding(const at::Tensor& weight, const at::Tensor& ids);

  static void fill(RotaryTable& table, const LlamaSizes& sizes, const at::Tensor& like);
  /// Rotates [B, T, H, E]: the halves of the last dimension are real and imaginary parts, turned by
  /// the position's angles.
  static at::Tensor rotate(const at::Tensor& input, const RotaryTable& table);
  /// Computes silu(gate) * up.
  static at::Tensor gate(const at::Tensor& gate, const at::Tensor& up);
};

}  // namespace shardlens::models
