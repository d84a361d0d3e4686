#include "models/aten_ops.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cmath>
#include <numbers>

#include "models/model.h"

namespace shardlens::models {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// Returns angular frequencies [E / 2], fp32. Llama 3.1's rule: wave lengths that fit less than
/// once into the 8192 tokens of the first training are stretched by the factor, those that fit more
/// than 4 times are kept, and between them the stretch changes linearly.
at::Tensor frequencies(const LlamaSizes& sizes, const at::TensorOptions& options) {
  constexpr double kFirstSeq = 8192, kLow = 1, kHigh = 4;
  const int64_t width = sizes.head_width();
  const at::Tensor exponents = at::arange(0, width, 2, options) / static_cast<double>(width);
  const at::Tensor frequency = 1.0 / at::pow(static_cast<double>(sizes.rope_theta), exponents);
  if (sizes.rope_factor == 1) return frequency;
  const at::Tensor turns = kFirstSeq * frequency / (2 * std::numbers::pi);
  const at::Tensor kept = ((turns - kLow) / (kHigh - kLow)).clamp(0, 1);
  return (1 - kept) * frequency / static_cast<double>(sizes.rope_factor) + kept * frequency;
}

/// Rotates: the halves of the last dimension are real and imaginary parts, turned by the angle of
/// `cos` and `sin`. Allocates only the result.
at::Tensor rotated(const at::Tensor& input, const at::Tensor& cos, const at::Tensor& sin,
                   double direction) {
  const int64_t half = input.size(-1) / 2;
  const at::Tensor real = input.narrow(-1, 0, half), imaginary = input.narrow(-1, half, half);
  at::Tensor output = at::empty_like(input);
  at::Tensor real_out = output.narrow(-1, 0, half), imaginary_out = output.narrow(-1, half, half);
  at::mul_out(real_out, real, cos).addcmul_(imaginary, sin, -direction);
  at::mul_out(imaginary_out, imaginary, cos).addcmul_(real, sin, direction);
  return output;
}

/// Rotates in an autograd node of our own, since ATen's would keep a copy for each product and sum.
struct Rotate : torch::autograd::Function<Rotate> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input,
                            const at::Tensor& cos, const at::Tensor& sin) {
    context->save_for_backward({cos, sin});
    return rotated(input, cos, sin, 1);
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const variable_list saved = context->get_saved_variables();
    return {rotated(gradients[0], saved[0], saved[1], -1), {}, {}};
  }
};

/// Computes silu(gate) * up. Backward needs only the two factors: ATen's nodes would also keep
/// silu(gate), a quarter of the MLP's activations.
struct GatedUnit : torch::autograd::Function<GatedUnit> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& gate,
                            const at::Tensor& up) {
    context->save_for_backward({gate, up});
    return at::silu(gate).mul_(up);
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &gate = saved[0], &up = saved[1];
    const at::Tensor gate_gradient = at::silu_backward(gradients[0] * up, gate);
    return {gate_gradient, at::silu(gate).mul_(gradients[0])};
  }
};

}  // namespace

at::Tensor AtenOps::linear(const at::Tensor& input, const at::Tensor& weight,
                           const at::Tensor& bias, InputUse use) {
  return models::linear(input, weight, bias, use);
}

at::Tensor AtenOps::project(const at::Tensor& input, const at::Tensor& weight, InputUse use) {
  return models::project(input, weight, use);
}

at::Tensor AtenOps::layer_norm(const at::Tensor& input, const at::Tensor& weight,
                               const at::Tensor& bias, double eps) {
  return at::layer_norm(input.to(weight.scalar_type()), {input.size(-1)}, weight, bias, eps)
      .to(input.scalar_type());
}

at::Tensor AtenOps::rms_norm(const at::Tensor& input, const at::Tensor& weight, double eps) {
  return at::rms_norm(input.to(weight.scalar_type()), {input.size(-1)}, weight, eps)
      .to(input.scalar_type());
}

at::Tensor AtenOps::attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                              bool causal) {
  return at::scaled_dot_product_attention(q, k, v, /*attn_mask=*/{}, /*dropout_p=*/0.0, causal,
                                          /*scale=*/{}, /*enable_gqa=*/k.size(1) < q.size(1));
}

at::Tensor AtenOps::gelu(const at::Tensor& input) { return at::gelu(input); }

at::Tensor AtenOps::cat(const std::vector<at::Tensor>& parts, int64_t dim) {
  return at::cat(parts, dim);
}

at::Tensor AtenOps::repeat_interleave(const at::Tensor& input, int64_t repeats, int64_t dim) {
  return at::repeat_interleave(input, repeats, dim);
}

at::Tensor AtenOps::embedding(const at::Tensor& weight, const at::Tensor& ids) {
  return at::embedding(weight, ids);
}

void AtenOps::fill(RotaryTable& table, const LlamaSizes& sizes, const at::Tensor& like) {
  if (table.cos.defined()) return;
  const at::NoGradGuard no_grad;
  const at::TensorOptions options = like.options().dtype(at::kFloat);
  const at::Tensor angles =
      at::outer(at::arange(sizes.seq, options), frequencies(sizes, options)).unsqueeze(1);
  table = {.cos = angles.cos().to(like.scalar_type()), .sin = angles.sin().to(like.scalar_type())};
}

at::Tensor AtenOps::rotate(const at::Tensor& input, const RotaryTable& table) {
  return Rotate::apply(input, table.cos, table.sin);
}

at::Tensor AtenOps::gate(const at::Tensor& gate, const at::Tensor& up) {
  return GatedUnit::apply(gate, up);
}

}  // namespace shardlens::models
