// The units of every family as code, written once for every kind of tensor: LibTorch's, with which
// models are trained (aten_ops.h), and the planner's, which have no values
// (planner/simulate/meta/ops.h). So both have the same temporary tensors, which live equally long.
//
// `Ops` is a struct of static functions:
//   Tensor, which has size, scalar_type, to, view, reshape, permute, transpose, select, expand,
//     unbind, relu, is_cuda and + as LibTorch's has them; kFloat, a dtype of Tensor
//   torch_rules(x)                  the row of torch_rules.h by which operators run
//   linear(input, weight, bias, use), project(input, weight, use)              models/model.h
//   layer_norm(input, weight, bias, eps), rms_norm(input, weight, eps)
//                        over the last dimension, in the weight's dtype; the result is as the input
//   attention(q, k, v, causal)      [B, H, T, E]; k and v may have fewer heads
//   gelu(x), cat({a, b}, dim), repeat_interleave(x, repeats, dim), embedding(weight, ids)
//   RotaryTable, fill(table, sizes, like), rotate(x, table), gate(gate, up)    of the llama family
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "base/check.h"
#include "models/families.h"
#include "models/spec.h"

namespace shardlens::models {

template <class Ops>
using UnitCode = std::function<typename Ops::Tensor(
    const typename Ops::Tensor& input, std::span<const typename Ops::Tensor> parameters)>;

/// Returns one function for each of spec.units; the model must belong to a family. The functions of
/// one call share tables that the first run makes, so they are for one thread and device.
template <class Ops>
std::vector<UnitCode<Ops>> make_units(const ModelSpec& spec) {
  using Tensor = typename Ops::Tensor;
  std::vector<UnitCode<Ops>> codes;
  const bool has_family = visit_sizes(spec, [&](const auto& sizes) {
    const auto units = units_of<Ops>(sizes);
    for (const UnitSpec& unit : spec.units) {
      codes.push_back([units, kind = unit.kind](const Tensor& x, std::span<const Tensor> p) {
        return units.run(kind, x, p);
      });
    }
  });
  check(has_family, "units of a program's own model");
  return codes;
}

}  // namespace shardlens::models
