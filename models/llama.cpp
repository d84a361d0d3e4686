// The units of a Llama decoder, as Hugging Face's LlamaForCausalLM computes them.
// B batch, T tokens, D width, H heads, K key and value heads, E = D / H head width, F MLP width, V
// vocabulary.
#include "models/units.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cmath>
#include <numbers>
#include <stdexcept>

namespace shardlens::models {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr double kRmsNormEps = 1e-5;

at::Tensor rms_norm(const at::Tensor& input, const at::Tensor& weight) {
  return at::rms_norm(input.to(weight.scalar_type()), {input.size(-1)}, weight, kRmsNormEps)
      .to(input.scalar_type());
}

/// Angular frequencies [E / 2], fp32. Llama 3.1's rule: wave lengths that the 8192 tokens of the
/// first training hold less than once are stretched by the factor, those that they hold more than
/// 4 times are kept, between them it goes over linearly.
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

const RotaryTable& fill(RotaryTable& table, const LlamaSizes& sizes, const at::Tensor& like) {
  if (table.cos.defined()) return table;
  const at::NoGradGuard no_grad;
  const at::TensorOptions options = like.options().dtype(at::kFloat);
  const at::Tensor angles =
      at::outer(at::arange(sizes.seq, options), frequencies(sizes, options)).unsqueeze(1);
  table = {.cos = angles.cos().to(like.scalar_type()), .sin = angles.sin().to(like.scalar_type())};
  return table;
}

/// The halves of the last dimension are real and imaginary parts, turned by the angle of `cos` and
/// `sin`; the result is all that is allocated.
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

/// An autograd node of our own, since ATen's would keep a copy for each product and sum.
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

/// silu(gate) * up, of which backward needs the two factors only: ATen's nodes would also keep
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

/// q [B, H, T, E], k and v [B, K, T, E] -> [B, H, T, E]
at::Tensor attend(const at::Tensor& q, at::Tensor k, at::Tensor v) {
  // On a GPU only flash attention, which wants reduced precision, takes fewer key heads as they
  // are; what PyTorch falls back to in fp32 would write down all T x T scores.
  const bool takes_groups = !q.is_cuda() || q.scalar_type() != at::kFloat;
  const int64_t repeats = q.size(1) / k.size(1);
  if (repeats > 1 && !takes_groups) {
    k = k.repeat_interleave(repeats, 1);
    v = v.repeat_interleave(repeats, 1);
  }
  return at::scaled_dot_product_attention(q, k, v, /*attn_mask=*/{}, /*dropout_p=*/0.0,
                                          /*is_causal=*/true, /*scale=*/{},
                                          /*enable_gqa=*/repeats > 1 && takes_groups);
}

/// [B, T, D] -> [B, T, D]
at::Tensor attention(const LlamaSizes& sizes, RotaryTable& table, const at::Tensor& input,
                     Parameters p) {
  const int64_t batch = input.size(0), tokens = input.size(1), width = sizes.head_width();
  const auto& [cos, sin] = fill(table, sizes, input);
  const at::Tensor normed = rms_norm(input, p[0]);
  const auto heads_of = [&](const at::Tensor& weight) {
    return project(normed, weight).view({batch, tokens, -1, width});
  };
  const at::Tensor q = Rotate::apply(heads_of(p[1]), cos, sin);
  const at::Tensor k = Rotate::apply(heads_of(p[2]), cos, sin);
  const at::Tensor v = heads_of(p[3]);
  const at::Tensor mixed = attend(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2))
                               .transpose(1, 2)
                               .reshape({batch, tokens, sizes.width});
  return input + project(mixed, p[4]);
}

/// [B, T, D] -> [B, T, D]
at::Tensor mlp(const at::Tensor& input, Parameters p) {
  const at::Tensor normed = rms_norm(input, p[0]);
  return input + project(GatedUnit::apply(project(normed, p[1]), project(normed, p[2])), p[3]);
}

/// [B, T, D] -> [B * T, V]
at::Tensor head(const at::Tensor& input, Parameters p) {
  return project(rms_norm(input, p[0]).view({-1, input.size(-1)}), p[1]);
}

}  // namespace

Forward llama_unit(const LlamaSizes& sizes, UnitKind kind,
                   const std::shared_ptr<RotaryTable>& table) {
  switch (kind) {
    case UnitKind::llama_attention:
      return [sizes, table](const at::Tensor& x, Parameters p) {
        return attention(sizes, *table, x, p);
      };
    case UnitKind::llama_mlp:
      return mlp;
    case UnitKind::llama_head:
      return head;
    default:
      throw std::logic_error("no unit of a Llama");
  }
}

}  // namespace shardlens::models
