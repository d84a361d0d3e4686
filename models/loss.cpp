#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "models/model.h"

namespace shardlens::models {

namespace {

bool has_token_targets(const ModelSpec& spec) { return !spec.sample.target_shape.empty(); }

/// Replaces some rows of logits by the gradient of `share` x (sum of losses) and returns that sum.
/// The softmax, then (probability - [is the target]) x share, are made in one fp32 copy; ATen's own
/// nodes hold three such tensors at once.
at::Tensor replace_by_gradient(at::Tensor rows, const at::Tensor& targets, double share,
                               const at::Tensor& weight) {
  const at::Tensor columns = targets.unsqueeze(1);
  at::Tensor work = rows.to(at::kFloat, /*non_blocking=*/false, /*copy=*/true);
  const at::Tensor highest = work.amax(1, /*keepdim=*/true);
  work.sub_(highest);
  const at::Tensor target_logits = work.gather(1, columns);
  const at::Tensor sums = work.exp_().sum(1, /*keepdim=*/true);
  at::Tensor loss = (sums.log() - target_logits).sum();
  work.mul_(share / sums);
  work.scatter_add_(1, columns, at::full_like(columns, -share, work.options()));
  if (weight.defined()) work.mul_(weight);
  rows.copy_(work);
  return loss;
}

/// Replaces the logits by their gradient, a few rows at a time, so that their fp32 copy is small
/// beside a vocabulary's logits.
LossAndGradient token_loss_and_gradient(at::Tensor logits, const at::Tensor& targets,
                                        const at::Tensor& weight) {
  constexpr int64_t kCopyBytes = 64 << 20;
  const at::NoGradGuard no_grad;
  const int64_t rows = logits.size(0);
  const int64_t row_bytes = logits.size(1) * static_cast<int64_t>(sizeof(float));
  const int64_t rows_at_once = std::max(kCopyBytes / row_bytes, int64_t{1});
  at::Tensor sum = at::zeros({}, logits.options().dtype(at::kFloat));
  for (int64_t first = 0; first < rows; first += rows_at_once) {
    const int64_t count = std::min(rows_at_once, rows - first);
    sum += replace_by_gradient(logits.narrow(0, first, count), targets.narrow(0, first, count),
                               1 / static_cast<double>(rows), weight);
  }
  return {sum / rows, std::move(logits)};
}

template <class LossOf>
LossAndGradient differentiate(const at::Tensor& output, const at::Tensor& weight, LossOf loss_of) {
  const at::Tensor leaf = output.detach().requires_grad_(true);
  const at::Tensor value = loss_of(leaf);
  value.backward(weight);
  return {value.detach(), leaf.grad()};
}

/// Returns the sum and its gradient, which is the same for every element, so it takes one element.
LossAndGradient sum_and_gradient(const at::Tensor& logits, const at::Tensor& weight) {
  const at::NoGradGuard no_grad;
  const at::Tensor one =
      weight.defined() ? weight.to(logits.scalar_type()) : at::ones({}, logits.options());
  return {logits.sum(at::kFloat), one.expand(logits.sizes())};
}

}  // namespace

at::Tensor loss(const ModelSpec& spec, const at::Tensor& logits, const at::Tensor& targets) {
  if (spec.loss == LossKind::sum) return logits.sum(at::kFloat);
  return at::cross_entropy_loss(logits.to(at::kFloat), targets.reshape({-1}));
}

LossAndGradient loss_and_gradient(const ModelSpec& spec, at::Tensor logits,
                                  const at::Tensor& targets, const at::Tensor& weight) {
  if (spec.loss == LossKind::sum) return sum_and_gradient(logits, weight);
  if (!has_token_targets(spec)) {
    return differentiate(logits, weight,
                         [&](const at::Tensor& leaf) { return loss(spec, leaf, targets); });
  }
  return token_loss_and_gradient(std::move(logits), targets.reshape({-1}), weight);
}

LossAndGradient loss_and_gradient(const Loss& own, const at::Tensor& output,
                                  const at::Tensor& targets, const at::Tensor& weight) {
  return differentiate(output, weight, [&](const at::Tensor& leaf) {
    const at::Tensor value = own(leaf, targets);
    if (value.numel() == 1 && value.requires_grad()) return value.reshape({}).to(at::kFloat);
    throw std::invalid_argument(
        fmt::format("the model's loss gives a tensor of {} elements{}; give one, such as the mean",
                    value.numel(), value.requires_grad() ? "" : " without a gradient"));
  });
}

}  // namespace shardlens::models
