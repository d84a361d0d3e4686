#include "planner/simulate/meta/losses.h"

#include <algorithm>
#include <utility>

#include "planner/simulate/meta/autograd.h"
#include "planner/simulate/meta/operators.h"
#include "planner/simulate/meta/reductions.h"

namespace shardlens::planner::meta {

namespace {

constexpr int64_t kFloatBytes = 4;

/// Computes log_softmax over classes.
Tensor log_softmax(const Tensor& input) {
  const CallScope call(input.context());
  Tensor output = empty_like(input);
  return with_node(output, {&input}, {output}, [](Node&, Tensors&& gradients) -> Tensors {
    return {empty_like(gradients[0])};
  });
}

/// Returns the mean over rows; its backward needs the sum of the rows' weights too.
Tensor nll_loss(const Tensor& input) {
  Context& context = input.context();
  const CallScope call(context);
  Tensor mean = Tensor::empty(context, {}, input.scalar_type());
  const Tensor total_weight = Tensor::empty(context, {}, input.scalar_type());
  return with_node(mean, {&input}, {input, total_weight},
                   [](Node& self, Tensors&&) -> Tensors { return {empty_like(self.saved[0])}; });
}

Tensor mean_cross_entropy(const Tensor& logits) {
  const Tensor wide = logits.to(Type::fp32);
  const CallScope call(logits.context());
  return nll_loss(log_softmax(wide));
}

/// Replaces some rows of logits by their gradient and returns the sum of their losses.
Tensor replace_by_gradient(const Tensor& rows) {
  Context& context = rows.context();
  const Sizes column{rows.size(0), 1};
  const auto make = [&] { return pointwise(context, column, Type::fp32); };
  const Tensor work = pointwise(context, rows.sizes(), Type::fp32);
  const Holder highest(amax(work, {1}));
  const Holder target_logits(make());
  const Holder sums(sum(work, {1}, Type::fp32));
  Tensor loss = [&] {
    const Holder logarithms(make());
    const Tensor losses = make();
    return sum(losses, {0, 1}, Type::fp32).view({});
  }();
  make();  // what the row's sum makes of each share
  make();  // the value subtracted at the target
  return loss;
}

MetaLossAndGradient token_loss_and_gradient(Tensor logits) {
  constexpr int64_t kCopyBytes = 64 << 20;
  Context& context = logits.context();
  const GradMode off(context, false);
  const int64_t rows = logits.size(0);
  const int64_t rows_at_once = std::max(kCopyBytes / (logits.size(1) * kFloatBytes), int64_t{1});
  const Holder total(pointwise(context, {}, Type::fp32));
  for (int64_t first = 0; first < rows; first += rows_at_once) {
    const int64_t count = std::min(rows_at_once, rows - first);
    const Holder part(replace_by_gradient(logits.narrow(0, first, count)));
  }
  return {with_number(context, {}, Type::fp32), std::move(logits)};
}

MetaLossAndGradient sum_and_gradient(const Tensor& logits, const Tensor& weight) {
  Context& context = logits.context();
  const GradMode off(context, false);
  const Tensor one = weight.defined() ? weight.to(logits.scalar_type())
                                      : pointwise(context, {}, logits.scalar_type());
  Tensor total = sum(logits, {0, 1}, Type::fp32).view({});
  return {std::move(total), one.expand(logits.sizes())};
}

MetaLossAndGradient differentiate(const Tensor& output, const Tensor& weight) {
  Context& context = output.context();
  const Tensor leaf = output.detach().requires_grad_(true);
  const Tensor value = mean_cross_entropy(leaf);
  {
    const Tensor gradient = weight.defined() ? weight : pointwise(context, {}, Type::fp32);
    run_backward(context, value.edge(), gradient);
  }
  return {value.detach(), leaf.leaf()->gradient};
}

}  // namespace

Tensor loss(const models::ModelSpec& spec, const Tensor& logits) {
  if (spec.loss == models::LossKind::sum) return sum(logits, {0, 1}, Type::fp32).view({});
  return mean_cross_entropy(logits);
}

MetaLossAndGradient loss_and_gradient(const models::ModelSpec& spec, Tensor logits,
                                      const Tensor& weight) {
  if (spec.loss == models::LossKind::sum) return sum_and_gradient(logits, weight);
  if (spec.sample.target_shape.empty()) return differentiate(logits, weight);
  return token_loss_and_gradient(std::move(logits));
}

}  // namespace shardlens::planner::meta
