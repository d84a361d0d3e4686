#include "planner/simulate/meta/composite_norm.h"

#include <utility>

#include "planner/simulate/meta/operators.h"

namespace shardlens::planner::meta {

namespace {

/// Multiplies by `factor`, which is read in fp32.
Tensor product(const Tensor& rows, const Tensor& factor) {
  const Holder read(factor.scalar_type() == Type::fp32 ? Tensor() : empty_like(factor, Type::fp32));
  return empty_like(rows);
}

Tensor square(const Tensor& input) {
  return with_node(empty_like(input), {&input}, {input}, [](Node& self, Tensors&&) -> Tensors {
    const Tensor power = empty_like(self.saved[0]);
    const Tensor doubled = with_number(power);
    return {empty_like(doubled)};
  });
}

/// Returns the mean over the last dimension, plus a number.
Tensor mean(const Tensor& input) {
  const Tensor total = sum(input.detach(), {-1}, Type::fp32);
  for (int i = 0; i < 2; ++i) const Number divisor(input.context(), Type::fp32);
  return with_node(total, {&input}, {},
                   [sizes = input.sizes()](Node&, Tensors&& gradients) -> Tensors {
                     const Holder divisor(Number(gradients[0].context(), Type::fp32));
                     return {Tensor::empty(gradients[0].context(), sizes, Type::fp32)};
                   });
}

Tensor inverse_root(const Tensor& input) {
  const Tensor output = empty_like(input);
  return with_node(output, {&input}, {output}, [](Node& self, Tensors&& gradients) -> Tensors {
    const Holder cube(empty_like(self.saved[0]));
    const Tensor half = with_number(gradients[0]);
    return {empty_like(half)};
  });
}

/// Multiplies by `factor`. It is broadcast, so its gradient is summed up, in its own type.
Tensor times(const Tensor& input, const Tensor& factor) {
  return with_node(product(input, factor), {&input, &factor}, {factor, input},
                   [](Node& self, Tensors&& gradients) -> Tensors {
                     const Tensor &gradient = gradients[0], &own_factor = self.saved[0];
                     Tensor whole = empty_like(gradient);
                     const Tensor input_gradient = product(gradient, own_factor);
                     Tensor factor_gradient = sum_to(whole, own_factor.sizes());
                     whole = {};
                     return {input_gradient, factor_gradient.to(own_factor.scalar_type())};
                   });
}

}  // namespace

Tensor with_number(const Tensor& input) {
  const Holder number(Number(input.context(), Type::fp32));
  return empty_like(input);
}

Tensor composite_rms_norm(const Tensor& input, const Tensor& weight) {
  Tensor wide = input.to(Type::fp32);
  const auto factor_of_rows = [&] {
    const Tensor squares = square(wide);
    const Tensor means = mean(squares);
    return inverse_root(means);
  };
  const Tensor factor = factor_of_rows();
  Tensor output = times(wide, factor);
  output = times(output, weight);
  output = output.contiguous();
  wide = {};
  return output.to(input.scalar_type());
}

}  // namespace shardlens::planner::meta
