// Operators of PyTorch as Python calls them, on tensors without values, where models/ writes the
// same layer differently: which nodes they leave, what these keep, and in which order generated
// code finds the gradients. What both have in common is in planner/meta/operators.h.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "planner/meta/autograd.h"
#include "planner/meta/tensor.h"

namespace shardlens::planner {

class PytorchOps {
 public:
  explicit PytorchOps(meta::Context& context) : context_(context) {}

  meta::Context& context() { return context_; }
  /// What runs from now on is autograd's, or no longer.
  void in_backward(bool backward) { context_.is_autograd_thread = backward; }

  /// functional.linear; `bias` may be undefined.
  meta::Tensor linear(const meta::Tensor& input, const meta::Tensor& weight,
                      const meta::Tensor& bias);
  /// nn.Conv2d whose stride is its kernel's size, without cuDNN.
  meta::Tensor conv2d(const meta::Tensor& input, const meta::Tensor& weight,
                      const meta::Tensor& bias);
  /// nn.MultiheadAttention(batch_first=True)(x, x, x, need_weights=False)
  struct AttentionWeights {
    meta::Tensor in, in_bias, out, out_bias;
  };
  meta::Tensor multi_head_attention(const meta::Tensor& input, const AttentionWeights& weights,
                                    int64_t heads);

  // Element by element; the result lies in memory as the first operand does.
  meta::Tensor add(const meta::Tensor& a, const meta::Tensor& b);
  meta::Tensor multiply(const meta::Tensor& a, const meta::Tensor& b);
  meta::Tensor silu(const meta::Tensor& input);

  /// Over the last dimension: (x.float() * rsqrt(x.float().pow(2).mean(-1) + eps)).type_as(x)
  /// * weight, as who writes it by hand does.
  meta::Tensor rms_norm_by_hand(const meta::Tensor& input, const meta::Tensor& weight);

  /// The mean over all tokens of functional.log_softmax(logits, dtype=type) at the targets.
  meta::Tensor cross_entropy(const meta::Tensor& logits, meta::Type type);
  /// logits.sum(dtype=float32)
  meta::Tensor sum(const meta::Tensor& logits);

 private:
  meta::Tensor matmul(const meta::Tensor& input, const meta::Tensor& weight);
  meta::Tensor addmm(const meta::Tensor& bias, const meta::Tensor& a, const meta::Tensor& b);
  meta::Tensor mm(const meta::Tensor& a, const meta::Tensor& b);
  meta::Tensor right_gradient(const meta::Tensor& gradient, const meta::Tensor& a,
                              const meta::Tensor& b);
  void multiply_samples(int64_t samples);
  meta::Tensor square(const meta::Tensor& input);
  meta::Tensor mean_of_rows(const meta::Tensor& input);
  meta::Tensor plus_number(const meta::Tensor& input);
  meta::Tensor inverse_root(const meta::Tensor& input);
  meta::Tensor multiply_by_broadcast(const meta::Tensor& a, const meta::Tensor& b);
  meta::Tensor log_softmax(const meta::Tensor& logits, meta::Type type);
  meta::Tensor nll_loss(const meta::Tensor& log_probabilities);

  meta::Context& context_;
};

}  // namespace shardlens::planner
