// Wraps the planner's tensors for the units of models/units.h.
#pragma once

#include "models/llama.h"
#include "models/spec.h"
#include "planner/simulate/meta/attention.h"
#include "planner/simulate/meta/operators.h"

namespace shardlens::planner::meta {

struct MetaOps {
  using Tensor = meta::Tensor;
  struct RotaryTable {
    Tensor cos;
    Tensor sin;
  };
  static constexpr Type kFloat = Type::fp32;
  static const models::TorchRules& torch_rules(const Tensor& tensor) {
    return *tensor.context().torch;
  }

  static Tensor linear(const Tensor& input, const Tensor& weight, const Tensor& bias,
                       models::InputUse use = models::InputUse::kept);
  static Tensor project(const Tensor& input, const Tensor& weight,
                        models::InputUse use = models::InputUse::kept);
  static Tensor layer_norm(const Tensor& input, const Tensor& weight, const Tensor& bias,
                           double eps);
  static Tensor rms_norm(const Tensor& input, const Tensor& weight, double eps);
  static Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, bool causal);
  static constexpr auto gelu = meta::gelu;
  static constexpr auto cat = meta::cat;
  static constexpr auto repeat_interleave = meta::repeat_interleave;
  static constexpr auto embedding = meta::embedding;

  static void fill(RotaryTable& table, const models::LlamaSizes& sizes, const Tensor& like);
  static Tensor rotate(const Tensor& input, const RotaryTable& table);
  static Tensor gate(const Tensor& gate, const Tensor& up);
};

}  // namespace shardlens::planner::meta
