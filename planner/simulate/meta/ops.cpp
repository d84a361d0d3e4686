#include "planner/simulate/meta/ops.h"

namespace shardlens::planner::meta {

namespace {

/// Computes the angular frequencies [E / 2] with the operators of models/aten_ops.cpp.
Tensor frequencies(const models::LlamaSizes& sizes, Context& context) {
  const Sizes halves{sizes.head_width() / 2};
  const auto make = [&] { return pointwise(context, halves, Type::fp32); };
  const auto result_with_number = [&] { return with_number(context, halves, Type::fp32); };
  const Tensor exponents = [&] {
    const Holder numbers(make());
    return result_with_number();
  }();
  const Tensor frequency = [&] {
    const Holder powers(power(exponents));
    return make();
  }();
  if (sizes.rope_factor == 1) return frequency;
  const Holder turns([&] {
    const Holder scaled(result_with_number());
    return result_with_number();
  }());
  const Holder kept([&] {
    const Holder shifted(result_with_number());
    const Holder scaled(result_with_number());
    return make();
  }());
  const Holder high(make());
  const Holder rest(result_with_number());
  const Holder low(make());
  const Holder stretched(result_with_number());
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
  const Holder angles([&] {
    const Holder frequency(frequencies(sizes, context));
    const Holder positions(pointwise(context, {sizes.seq}, Type::fp32));
    return make();
  }());
  const Tensor cos = make();
  table.cos = cos.to(like.scalar_type());
  const Tensor sin = make();
  table.sin = sin.to(like.scalar_type());
}

Tensor MetaOps::rotate(const Tensor& input, const RotaryTable& table) {
  Tensor output = meta::empty_like(input);
  return with_node(
      output, {&input}, {table.cos, table.sin},
      [](Node&, Tensors&& gradients) -> Tensors { return {meta::empty_like(gradients[0])}; });
}

Tensor MetaOps::gate(const Tensor& gate, const Tensor& up) {
  Tensor output = meta::empty_like(gate);
  return with_node(output, {&gate, &up}, {gate, up},
                   [](Node& self, Tensors&& gradients) -> Tensors {
                     const Tensor gate_gradient = [&] {
                       const Holder product(meta::empty_like(gradients[0]));
                       return meta::empty_like(self.saved[0]);
                     }();
                     return {gate_gradient, meta::empty_like(self.saved[0])};
                   });
}

}  // namespace shardlens::planner::meta
