// Operators of PyTorch as Python calls them, on tensors without values, for layers that models/
// writes differently: which nodes they leave, what these keep, and in which order generated code
// finds the gradients. Operators that both share are in planner/simulate/meta/operators.h.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "planner/simulate/meta/autograd.h"
#include "planner/simulate/meta/tensor.h"

namespace shardlens::planner {

class PytorchOps {
 public:
  explicit PytorchOps(meta::Context& context) : context_(context) {}

  meta::Context& context() { return context_; }
  /// Says whether operators from now on run on autograd's thread (true) or on the main thread.
  void set_in_backward(bool backward) { context_.is_autograd_thread = backward; }

  /// Computes functional.linear; `bias` may be undefined.
  meta::Tensor linear(const meta::Tensor& input, const meta::Tensor& weight,
                      const meta::Tensor& bias);
  /// Computes an nn.Conv2d whose stride is its kernel's size, without cuDNN.
  meta::Tensor conv2d(const meta::Tensor& input, const meta::Tensor& weight,
                      const meta::Tensor& bias);
  /// The parameters of nn.MultiheadAttention(batch_first=True)(x, x, x, need_weights=False).
  struct AttentionWeights {
    meta::Tensor in, in_bias, out, out_bias;
  };
  meta::Tensor multi_head_attention(const meta::Tensor& input, const AttentionWeights& weights,
                                    int64_t heads);

  // These work element by element; the result is laid out in memory as the first operand is.
  meta::Tensor add(const meta::Tensor& a, const meta::Tensor& b);
  meta::Tensor multiply(const meta::Tensor& a, const meta::Tensor& b);
  meta::Tensor silu(const meta::Tensor& input);

  /// Computes (x.float() * rsqrt(x.float().pow(2).mean(-1) + eps)).type_as(x) * weight over the
  /// last dimension, as programs do that write RMSNorm by hand.
  meta::Tensor rms_norm_by_hand(const meta::Tensor& input, const meta::Tensor& weight);

  /// Returns the mean over all tokens of functional.log_softmax(logits, dtype=type) at the targets.
  meta::Tensor cross_entropy(const meta::Tensor& logits, meta::Type type);
  /// Computes logits.sum(dtype=float32).
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
