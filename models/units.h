// The units of every family as code, written once for every kind of tensor: LibTorch's, with which
// models are trained (aten_ops.h), and the planner's, which have no values (simulate/meta/ops.h).
// So both have the same temporary tensors, which live equally long.
//
// `Ops` is a struct of static functions:
//   Tensor, which has size, scalar_type, to, view, reshape, permute, transpose, select, expand,
//     unbind, relu, is_cuda and + as LibTorch's has them; kFloat, a dtype of it
//   torch_rules(x)                  the row of torch_rules.h by which operators run
//   linear(input, weight, bias, use), project(input, weight, use)              models/model.h
//   layer_norm(input, weight, bias, eps), rms_norm(input, weight, eps)
//                        over the last dimension, in the weight's dtype; the result is as the input
//   attention(q, k, v, causal)      [B, H, T, E]; k and v may have fewer heads
//   gelu(x), cat({a, b}, dim), repeat_interleave(x, repeats, dim), embedding(weight, ids)
//   RotaryTable, fill(table, sizes, like), rotate(x, table), gate(gate, up)    of the llama family
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <stdexcept>
#include <vector>

#include "models/llama_units.h"
#include "models/simple_units.h"
#include "models/spec.h"
#include "models/vit_units.h"

namespace shardlens::models {

template <class Ops>
using UnitCode = std::function<typename Ops::Tensor(
    const typename Ops::Tensor& input, std::span<const typename Ops::Tensor> parameters)>;

/// Returns one function for each of spec.units; the model must belong to a family. The functions of
/// one call share tables that the first run makes, so they are for one thread and device.
template <class Ops>
std::vector<UnitCode<Ops>> make_units(const ModelSpec& spec) {
  using Tensor = typename Ops::Tensor;
  using Parameters = std::span<const Tensor>;
  const auto rotary = std::make_shared<typename Ops::RotaryTable>();
  std::vector<UnitCode<Ops>> units;
  const auto add = [&](auto family, UnitKind kind) {
    units.push_back([family = std::move(family), kind](const Tensor& x, Parameters p) {
      return family.run(kind, x, p);
    });
  };
  for (const UnitSpec& unit : spec.units) {
    if (unit.kind == UnitKind::token_embed) {
      units.push_back([](const Tensor& ids, Parameters p) { return Ops::embedding(p[0], ids); });
    } else if (spec.family == Family::vit) {
      add(VitUnits<Ops>(spec.vit), unit.kind);
    } else if (spec.family == Family::llama) {
      add(LlamaUnits<Ops>(spec.llama, rotary), unit.kind);
    } else if (spec.family == Family::mlp) {
      add(MlpUnits<Ops>(), unit.kind);
    } else if (spec.family == Family::transformer) {
      add(TransformerUnits<Ops>(), unit.kind);
    } else {
      throw std::logic_error("family out of range");
    }
  }
  return units;
}

}  // namespace shardlens::models
