#include "planner/simulate/meta/ops.h"

namespace shardlens::planner::meta {

namespace {

/// Computes the angular frequencies [E / 2] with the operators of models/aten_ops.cpp.
Tensor frequencies(const models::LlamaSizes& sizes, Context& context) {
  const Sizes halves{sizes.head_width() / 2};
  const auto make = [&] { return pointwise(context, halves, Type::fp32); };
  const auto beside_number = [&] { return with_number(context, halves, Type::fp32); };
  const Tensor exponents = [&] {
    const Held numbers(make());
    return beside_number();
  }();
  const Tensor frequency = [&] {
    const Held powers(power(exponents));
    return make();
  }();
  if (sizes.rope_factor == 1) return frequency;
  const Held turns([&] {
    const Held scaled(beside_number());
    return beside_number();
  }());
  const Held kept([&] {
    const Held shifted(beside_number());
    const Held scaled(beside_number());
    return make();
  }());
  const Held high(make());
  const Held rest(beside_number());
  const Held low(make());
  const Held stretched(beside_number());
  return make();
}

}  // namespace

Tensor MetaOps::linear(const Tensor& input, const Tensor& weight, const Tensor& bias,
                       InputUse use) {
  return meta::linear(input, weight, bias, use);
}

Tensor MetaOps::project(const Tensor& input, const Tensor& weight, InputUse use) {
  return meta::project(input, weight, use);
}

Tensor MetaOps::layer_norm(const Tensor& input, const Tensor& weight, const Tensor& bias, double) {
  return meta::layer_norm(input.to(weight.scalar_type()), weight, bias).to(input.scalar_type());
}

Tensor MetaOps::rms_norm(const Tensor& input, const Tensor& weight, double) {
  return meta::rms_norm(input.to(weight.scalar_type()), weight).to(input.scalar_type());
}

Tensor MetaOps::attention(const Tensor& q, const Tensor& k, const Tensor& v, bool causal) {
  return meta::attention(q, k, v, {.causal = causal, .grouped = k.size(1) < q.size(1)});
}

void MetaOps::fill(RotaryTable& table, const models::LlamaSizes& sizes, const Tensor& like) {
  if (table.cos.defined()) return;
  Context& context = like.context();
  const GradMode off(context, false);
  const auto make = [&] {
    return pointwise(context, {sizes.seq, 1, sizes.head_width() / 2}, Type::fp32);
  };
  const Held angles([&] {
    const Held frequency(frequencies(sizes, context));
    const Held positions(pointwise(context, {sizes.seq}, Type::fp32));
    return make();
  }());
  const Tensor cos = make();
  table.cos = cos.to(like.scalar_type());
  const Tensor sin = make();
  table.sin = sin.to(like.scalar_type());
}

Tensor MetaOps::rotate(const Tensor& input, const RotaryTable& table) {
  Tensor output = meta::like(input);
  return with_node(
      output, {&input}, {table.cos, table.sin},
      [](Node&, Tensors&& gradients) -> Tensors { return {meta::like(gradients[0])}; });
}

Tensor MetaOps::gate(const Tensor& gate, const Tensor& up) {
  Tensor output = meta::like(gate);
  return with_node(output, {&gate, &up}, {gate, up},
                   [](Node& self, Tensors&& gradients) -> Tensors {
                     const Tensor gate_gradient = [&] {
                       const Held product(meta::like(gradients[0]));
                       return meta::like(self.saved[0]);
                     }();
                     return {gate_gradient, meta::like(self.saved[0])};
                   });
}

}  // namespace shardlens::planner::meta
