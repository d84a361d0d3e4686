#include "planner/pytorch/ops.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "planner/simulate/meta/attention.h"
#include "planner/simulate/meta/operators.h"

namespace shardlens::planner {

using meta::blas_product;
using meta::Node;
using meta::OperatorCall;
using meta::Sizes;
using meta::Tensor;
using meta::Tensors;
using meta::Type;
using meta::with_node;

namespace {

Sizes without_last(const Tensor& tensor, int64_t last) {
  Sizes sizes = tensor.sizes();
  sizes[sizes.size() - 1] = last;
  return sizes;
}

}  // namespace

// ---- matrix products ----------------------------------------------------------------------------

/// Returns the gradient of a x b for b, laid out as b is.
Tensor PytorchOps::right_gradient(const Tensor& gradient, const Tensor& a, const Tensor& b) {
  if (b.stride(0) == 1 && b.stride(1) == b.size(0)) {
    return blas_product(gradient.t(), a).t();
  }
  return blas_product(a.t(), gradient);
}

Tensor PytorchOps::addmm(const Tensor& bias, const Tensor& a, const Tensor& b) {
  return with_node(blas_product(a.detach(), b.detach(), library_with_bias(a, b.t())),
                   {&bias, &a, &b}, {a, b}, [this](Node& self, Tensors&& gradients) -> Tensors {
                     const Tensor &gradient = gradients[0], a = self.saved[0], b = self.saved[1];
                     Tensors results(3);
                     if (self.wants(1)) results[1] = blas_product(gradient, b.t());
                     if (self.wants(2)) results[2] = right_gradient(gradient, a, b);
                     if (self.wants(0)) results[0] = meta::sum_to(gradient, {b.size(1)});
                     return results;
                   });
}

Tensor PytorchOps::mm(const Tensor& a, const Tensor& b) {
  return with_node(blas_product(a.detach(), b.detach()), {&a, &b}, {b, a},
                   [this](Node& self, Tensors&& gradients) -> Tensors {
                     const Tensor &gradient = gradients[0], b = self.saved[0], a = self.saved[1];
                     Tensors results(2);
                     if (self.wants(1)) results[1] = right_gradient(gradient, a, b);
                     if (self.wants(0)) results[0] = blas_product(gradient, b.t());
                     return results;
                   });
}

/// Multiplies input [..., in] by weight [out, in].
Tensor PytorchOps::matmul(const Tensor& input, const Tensor& weight) {
  const Tensor transposed = weight.t();
  const Tensor rows = input.reshape({-1, input.size(-1)});
  return mm(rows, transposed).view(without_last(input, weight.size(0)));
}

Tensor PytorchOps::linear(const Tensor& input, const Tensor& weight, const Tensor& bias) {
  const OperatorCall call(context_);
  if (!bias.defined()) return matmul(input, weight);
  if (input.dim() == 2) return addmm(bias, input, weight.t());
  if (input.is_contiguous()) {
    const Tensor rows = input.view({-1, input.size(-1)});
    return addmm(bias, rows, weight.t()).view(without_last(input, weight.size(0)));
  }
  // The bias is added in place.
  const Tensor output = matmul(input, weight);
  return with_node(
      output.detach(), {&output, &bias}, {}, [](Node& self, Tensors&& gradients) -> Tensors {
        const Tensor& gradient = gradients[0];
        return {gradient, self.wants(1) ? meta::sum_to(gradient, {gradient.size(-1)}) : Tensor()};
      });
}

// ---- layers -------------------------------------------------------------------------------------

/// Runs one product for each sample; only cuBLAS's workspace matters here.
void PytorchOps::multiply_samples(int64_t samples) {
  for (int64_t i = 0; i < samples; ++i) {
    take_blas_workspace(context_, meta::BlasLibrary::cublas);
  }
}

/// Models slow_conv2d_forward and its backward in native/cuda/ConvolutionMM2d.cu, which unfold one
/// sample after another into columns.
Tensor PytorchOps::conv2d(const Tensor& input, const Tensor& weight, const Tensor& bias) {
  const OperatorCall call(context_);
  const int64_t patch = weight.size(2), side = input.size(2) / patch;
  const Sizes columns_sizes = {weight.size(1) * patch * patch, side * side};
  Tensor output =
      Tensor::empty(context_, {input.size(0), weight.size(0), side, side}, input.scalar_type());
  {
    const meta::Holder columns(Tensor::empty(context_, columns_sizes, input.scalar_type()));
    multiply_samples(input.size(0));
  }
  return with_node(std::move(output), {&input, &weight, &bias}, {input, weight},
                   [this, columns_sizes](Node& self, Tensors&& gradients) -> Tensors {
                     const meta::Holder gradient(gradients[0].contiguous());
                     const Tensor& weight = self.saved[1];
                     Tensors results(3);
                     if (self.wants(2)) {
                       results[2] = Tensor::empty(context_, {weight.size(0)}, weight.scalar_type());
                     }
                     if (self.wants(1)) results[1] = meta::empty_like(weight);
                     const Tensor columns =
                         Tensor::empty(context_, columns_sizes, weight.scalar_type());
                     multiply_samples(self.saved[0].size(0));
                     return results;
                   });
}

Tensor PytorchOps::multi_head_attention(const Tensor& input, const AttentionWeights& weights,
                                        int64_t heads) {
  const int64_t batch = input.size(0), tokens = input.size(1), width = input.size(2);
  const Tensor rows = input.transpose(0, 1);
  const Tensor packed = [&] {
    // Two dimensions are swapped by way of a third, as PyTorch does.
    return linear(rows, weights.in, weights.in_bias)
        .view({tokens, batch, 3, width})
        .permute({2, 0, 1, 3})
        .contiguous();
  }();
  // All three are viewed in step, since backward visits them in the reverse order.
  Tensors parts = {packed.select(0, 0), packed.select(0, 1), packed.select(0, 2)};
  for (Tensor& part : parts) {
    part = part.view({tokens, batch * heads, width / heads}).transpose(0, 1);
  }
  for (Tensor& part : parts) part = part.view({batch, heads, tokens, width / heads});
  Tensor mixed = meta::attention(parts[0], parts[1], parts[2], {});
  mixed = mixed.permute({2, 0, 1, 3}).contiguous().view({tokens * batch, width});
  mixed = linear(mixed, weights.out, weights.out_bias);
  return mixed.view({tokens, batch, width}).transpose(0, 1);
}

// ---- element by element -------------------------------------------------------------------------

Tensor PytorchOps::add(const Tensor& a, const Tensor& b) {
  const OperatorCall call(context_);
  const bool is_broadcast = meta::broadcast(a.sizes(), b.sizes()) != a.sizes();
  return with_node(
      meta::empty_like(is_broadcast ? b : a), {&a, &b}, {},
      [sizes_a = a.sizes(), sizes_b = b.sizes()](Node& self, Tensors&& gradients) -> Tensors {
        const Tensor& gradient = gradients[0];
        return {self.wants(0) ? meta::sum_to(gradient, sizes_a) : Tensor(),
                self.wants(1) ? meta::sum_to(gradient, sizes_b) : Tensor()};
      });
}

Tensor PytorchOps::multiply(const Tensor& a, const Tensor& b) {
  const OperatorCall call(context_);
  return with_node(meta::empty_like(a), {&a, &b}, {b, a},
                   [](Node& self, Tensors&& gradients) -> Tensors {
                     Tensors results(2);
                     if (self.wants(1)) results[1] = meta::empty_like(gradients[0]);
                     if (self.wants(0)) results[0] = meta::empty_like(gradients[0]);
                     return results;
                   });
}

Tensor PytorchOps::silu(const Tensor& input) {
  const OperatorCall call(context_);
  return with_node(
      meta::empty_like(input), {&input}, {input},
      [](Node&, Tensors&& gradients) -> Tensors { return {meta::empty_like(gradients[0])}; });
}

// ---- a norm by hand -----------------------------------------------------------------------------

/// Computes pow(2); its backward computes grad * (2 * input.pow(1)).
Tensor PytorchOps::square(const Tensor& input) {
  const OperatorCall call(context_);
  return with_node(meta::empty_like(input), {&input}, {input},
                   [](Node& self, Tensors&& gradients) -> Tensors {
                     const Tensor power = meta::empty_like(self.saved[0]);
                     const meta::Holder doubled(meta::empty_like(power));
                     return {meta::empty_like(gradients[0])};
                   });
}

Tensor PytorchOps::mean_of_rows(const Tensor& input) {
  const OperatorCall call(context_);
  return with_node(meta::sum(input.detach(), {input.dim() - 1}, input.scalar_type()), {&input}, {},
                   [this, sizes = input.sizes()](Node&, Tensors&& gradients) -> Tensors {
                     return {Tensor::empty(context_, sizes, gradients[0].scalar_type())};
                   });
}

Tensor PytorchOps::plus_number(const Tensor& input) {
  const OperatorCall call(context_);
  return with_node(meta::empty_like(input), {&input}, {},
                   [](Node&, Tensors&& gradients) -> Tensors { return {gradients[0]}; });
}

/// Computes rsqrt; its backward computes -0.5 * grad * result.pow(3).
Tensor PytorchOps::inverse_root(const Tensor& input) {
  const OperatorCall call(context_);
  Tensor output = meta::empty_like(input);
  return with_node(output, {&input}, {output}, [](Node& self, Tensors&& gradients) -> Tensors {
    const meta::Holder cube(meta::empty_like(self.saved[0]));
    const Tensor half = meta::empty_like(gradients[0]);
    return {meta::empty_like(half)};
  });
}

/// Multiplies by `b`, which is broadcast. Backward sums b's gradient up once both gradients
/// exist.
Tensor PytorchOps::multiply_by_broadcast(const Tensor& a, const Tensor& b) {
  const OperatorCall call(context_);
  return with_node(meta::empty_like(a), {&a, &b}, {b, a},
                   [](Node& self, Tensors&& gradients) -> Tensors {
                     const Tensor& gradient = gradients[0];
                     Tensor whole = meta::empty_like(gradient);
                     const Tensor of_a = meta::empty_like(gradient);
                     Tensor of_b = meta::sum_to(whole, self.saved[0].sizes());
                     return {of_a, of_b};
                   });
}

Tensor PytorchOps::rms_norm_by_hand(const Tensor& input, const Tensor& weight) {
  const Tensor output =
      [&] {
        const Tensor wide = input.to(Type::fp32);
        Tensor factor = mean_of_rows(square(wide));
        factor = plus_number(factor);
        factor = inverse_root(factor);
        return multiply_by_broadcast(wide, factor);
      }()
          .to(input.scalar_type());
  return multiply_by_broadcast(output, weight);
}

// ---- losses -------------------------------------------------------------------------------------

/// Computes log_softmax in another dtype: bf16 logits are copied first, fp16 ones are read as they
/// are.
Tensor PytorchOps::log_softmax(const Tensor& logits, Type type) {
  const Tensor input = logits.scalar_type() == Type::bf16 ? logits.to(type) : logits;
  const OperatorCall call(context_);
  Tensor output = meta::empty_like(input, type);
  return with_node(output, {&input}, {output},
                   [own = input.scalar_type()](Node&, Tensors&& gradients) -> Tensors {
                     return {meta::empty_like(gradients[0], own)};
                   });
}

Tensor PytorchOps::nll_loss(const Tensor& log_probabilities) {
  const OperatorCall call(context_);
  Tensor mean = Tensor::empty(context_, {}, log_probabilities.scalar_type());
  const Tensor total_weight = Tensor::empty(context_, {}, log_probabilities.scalar_type());
  return with_node(
      std::move(mean), {&log_probabilities}, {log_probabilities, total_weight},
      [](Node& self, Tensors&&) -> Tensors { return {meta::empty_like(self.saved[0])}; });
}

Tensor PytorchOps::cross_entropy(const Tensor& logits, Type type) {
  const Tensor log_probabilities = log_softmax(logits.reshape({-1, logits.size(-1)}), type);
  return nll_loss(log_probabilities);
}

Tensor PytorchOps::sum(const Tensor& logits) {
  std::vector<int64_t> dims(logits.sizes().size());
  std::iota(dims.begin(), dims.end(), int64_t{0});
  const OperatorCall call(context_);
  Tensor total = meta::sum(logits.detach(), dims, Type::fp32).view({});
  return with_node(
      std::move(total), {&logits}, {},
      [sizes = logits.sizes(), type = logits.scalar_type()](Node&, Tensors&& gradients) -> Tensors {
        Sizes ones = sizes;
        for (size_t i = 0; i < ones.size(); ++i) ones[i] = 1;
        return {gradients[0].view(ones).expand(sizes).to(type)};
      });
}

}  // namespace shardlens::planner
