// Defines what the interpreter needs for computing: units, backward, the loss.
#include <ATen/ATen.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <memory>
#include <utility>

#include "runtime/execute/executor.h"

namespace shardlens::runtime {

using planner::Action;
using profiler::Category;

namespace {

struct GradientHook : torch::autograd::PostAccumulateGradHook {
  explicit GradientHook(std::function<void()> call) : call(std::move(call)) {}
  void operator()(const at::Tensor&) override { call(); }
  std::function<void()> call;
};

}  // namespace

void Executor::hook_weights() {
  for (int parameter = 0; parameter < static_cast<int>(spec_.parameters.size()); ++parameter) {
    if (!state_.weight(parameter).requires_grad()) continue;
    auto hook = std::make_unique<GradientHook>([this, parameter] {
      const at::NoGradGuard no_grad;
      try {
        on_gradient(parameter);
      } catch (...) {
        failure_ = std::current_exception();
        throw;
      }
    });
    torch::autograd::impl::set_post_acc_grad_hooks(state_.weight(parameter), std::move(hook));
  }
}

void Executor::bind(const Action& action) {
  if (!action.reads.empty() && !state_.is_bound(action.group)) {
    state_.bind(action.group, action.reads.front());
  }
}

at::Tensor Executor::loss_of(const at::Tensor& logits, const at::Tensor& targets) const {
  return own_loss_ ? own_loss_(logits, targets) : models::loss(spec_, logits, targets);
}

models::LossAndGradient Executor::loss_and_gradient(at::Tensor logits, const at::Tensor& targets,
                                                    const at::Tensor& weight) const {
  return own_loss_ ? models::loss_and_gradient(own_loss_, logits, targets, weight)
                   : models::loss_and_gradient(spec_, std::move(logits), targets, weight);
}

void Executor::run_backward(const torch::autograd::Edge& output, at::Tensor gradient) {
  try {
    const profiler::UnobservedBackward unobserved;
    const models::GradientPlaces places(
        [this](const at::Tensor& weight) { return place_for(weight); });
    torch::autograd::Engine::get_default_engine().execute(
        {output}, {std::move(gradient)}, /*keep_graph=*/false, /*create_graph=*/false,
        /*accumulate_grad=*/true);
  } catch (...) {
    // Autograd may wrap what a hook throws; the caller wants the error itself.
    if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
    throw;
  }
}

/// Returns a gradient's range of the reduce slot, if the gradient may be computed there.
at::Tensor Executor::place_for(const at::Tensor& weight) {
  const std::optional<int> parameter = state_.find_weight(weight);
  const int slot = parameter ? slot_for(*parameter) : -1;
  if (slot < 0) return {};
  // This is a new tensor, since autograd takes only unshared ones.
  return state_.gradient(*parameter, slot).detach();
}

void Executor::recategorise_gradient(int parameter) {
  if (recorder_ == nullptr) return;
  recorder_->recategorise(space_, state_.weight(parameter).grad().data_ptr(), Category::gradient);
}

void Executor::store_gradient(int parameter, int slot, bool adds) {
  at::Tensor& gradient = state_.weight(parameter).mutable_grad();
  const at::Tensor& range = state_.gradient(parameter, slot);
  if (adds) {
    range.add_(gradient);
  } else if (gradient.data_ptr() != range.data_ptr()) {
    range.copy_(gradient);
  }
  gradient.reset();
}

}  // namespace shardlens::runtime
