// Layer norm and RMS norm: LibTorch's native/layer_norm.cpp and native/cuda/layer_norm_kernel.cu.
#include <algorithm>
#include <span>
#include <utility>

#include "base/units.h"
#include "planner/simulate/meta/composite_norm.h"
#include "planner/simulate/meta/operators.h"

namespace shardlens::planner::meta {

namespace {

/// Allocates one number per row: the mean, or one over the standard deviation.
Tensor row_statistic(const Tensor& input) {
  const bool is_single = input.is_cuda() && is_reduced(input.scalar_type());
  Sizes sizes = input.sizes();
  sizes[sizes.size() - 1] = 1;
  return Tensor::empty(input.context(), sizes, is_single ? Type::fp32 : input.scalar_type());
}

/// Takes the memory for weights' gradients of very many rows, as LaunchGammaBetaBackwardCUDAKernel
/// in layer_norm_kernel.cu does: parts for 32 rows each, which are then summed up. The sums replace
/// the tensors in `gradients`.
void sum_parts(const Tensor& input, std::span<Tensor> gradients) {
  constexpr int64_t kRows = 32, kColumns = 32, kMany = int64_t{64} << 10, kMostBlocks = 32 << 10;
  const int64_t width = input.size(-1), rows = input.numel() / width;
  Context& context = input.context();
  if (rows <= kMany || width / kColumns >= context.gpu->sm_count / 2) return;
  const int64_t parts = std::min(kMostBlocks / ceil_div(width, kColumns), ceil_div(rows, kRows));
  Tensors sums;
  for (const Tensor& gradient : gradients) {
    sums.push_back(Tensor::empty(context, {parts, width}, gradient.scalar_type()));
  }
  for (size_t i = 0; i < sums.size(); ++i) {
    gradients[i] = sum(sums[i], {0}, sums[i].scalar_type()).view({width});
  }
  while (!sums.empty()) sums.pop_back();
}

/// Returns the gradients of the input and of the weights, of which there are one or two.
Tensors fused_backward(Node& node, const Tensor& given_gradient, const Tensor& given_input,
                       const Tensor& weight) {
  const Tensor input = given_input.contiguous();
  Context& context = input.context();
  Tensors results(node.next.size());
  if (node.wants(0)) results[0] = Tensor::empty(context, input.sizes(), input.scalar_type());
  for (size_t i = 1; i < results.size(); ++i) {
    if (node.wants(i)) results[i] = empty_like(weight);
  }
  const Tensor gradient = given_gradient.contiguous();
  if (gradient.is_cuda()) {
    if (node.wants(1)) sum_parts(input, std::span(results).subspan(1));
  } else if (node.wants(1) || node.wants(2)) {
    const Sizes sizes = {2, context.threads, input.size(-1)};
    const Holder parts(Tensor::empty(context, sizes, input.scalar_type()));
  }
  return results;
}

/// Returns the output and one or two statistics of each row.
Tensors fused_forward(const Tensor& given_input, size_t statistics) {
  const GradMode off(given_input.context(), false);
  const Tensor input = given_input.detach().contiguous();
  Tensors results = {Tensor::empty(input.context(), input.sizes(), input.scalar_type())};
  for (size_t i = 0; i < statistics; ++i) results.push_back(row_statistic(input));
  return results;
}

}  // namespace

Tensor layer_norm(const Tensor& input, const Tensor& weight, const Tensor& bias) {
  const CallScope call(input.context());
  Tensors made = fused_forward(input, 2);
  Tensor& output = made[0];
  return with_node(output, {&input, &weight, &bias}, {bias, input, weight, made[1], made[2]},
                   [](Node& self, Tensors&& gradients) {
                     return fused_backward(self, gradients[0], self.saved[1], self.saved[2]);
                   });
}

Tensor rms_norm(const Tensor& input, const Tensor& weight) {
  const CallScope call(input.context());
  if (!input.is_cuda()) return composite_rms_norm(input, weight);
  Tensors made = fused_forward(input, 1);
  Tensor& output = made[0];
  return with_node(output, {&input, &weight}, {input, weight, made[1]},
                   [](Node& self, Tensors&& gradients) {
                     return fused_backward(self, gradients[0], self.saved[0], self.saved[1]);
                   });
}

}  // namespace shardlens::planner::meta
