#include "runtime/execute/step_ops.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/variable.h>

namespace shardlens::runtime {

torch::autograd::Edge AtenStepOps::edge(const at::Tensor& output) {
  return torch::autograd::impl::gradient_edge(output);
}

at::Tensor AtenStepOps::range(const at::Tensor& like, int64_t begin, int64_t end, int64_t step) {
  return at::arange(begin, end, step, like.options());
}

at::Tensor AtenStepOps::full(const Device& device, double value) {
  return at::full({}, value, at::dtype(at::kFloat).device(device));
}

at::Tensor AtenStepOps::zero_count(const Device& device) {
  return at::zeros({}, at::dtype(at::kInt).device(device));
}

at::Tensor AtenStepOps::vector_norm(const at::Tensor& gradient) {
  return at::linalg_vector_norm(gradient, 2, std::nullopt, false, at::kFloat);
}

void AtenStepOps::update_scale(at::Tensor& scale, at::Tensor& steps_without_overflow,
                               const at::Tensor& overflowed, double growth, double backoff,
                               int64_t growth_steps) {
  at::_amp_update_scale_(scale, steps_without_overflow, overflowed, growth, backoff, growth_steps);
}

std::optional<LossScaleState> state_of(const GradientScale& scale) {
  if (!scale.steps_without_overflow().defined()) return std::nullopt;
  return LossScaleState{scale.scale().item<double>(),
                        scale.steps_without_overflow().item<int64_t>()};
}

void restore(const LossScaleState& state, const GradientScale& scale) {
  if (!scale.steps_without_overflow().defined()) return;
  scale.scale().fill_(state.scale);
  scale.steps_without_overflow().fill_(state.steps_without_overflow);
}

}  // namespace shardlens::runtime
