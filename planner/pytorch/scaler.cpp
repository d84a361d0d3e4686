#include "planner/pytorch/scaler.h"

#include "planner/simulate/meta/autograd.h"
#include "planner/simulate/meta/operators.h"

namespace shardlens::planner {

using meta::Node;
using meta::Tensor;
using meta::Tensors;
using meta::Type;

/// Takes one number on the device.
PytorchScaler::Block PytorchScaler::take(Type type) {
  return std::make_shared<meta::Storage>(*context_.memory, meta::bytes_of(type));
}

void PytorchScaler::take_and_release(Type type) { take(type); }

Tensor PytorchScaler::scale(const Tensor& loss) {
  if (!scale_.defined()) {
    scale_ = Tensor::empty(context_, {}, Type::fp32);
    growth_tracker_ = take(Type::int32);
  }
  return meta::with_node(
      Tensor::empty(context_, {}, Type::fp32), {&loss}, {scale_},
      [](Node&, Tensors&& gradients) -> Tensors { return {meta::empty_like(gradients[0])}; });
}

/// Models _unscale_grads_, which copies two numbers to the gradients' device, one of which outlives
/// the call. Ranks that hold shards then agree on the largest result, by a collective on a copy.
void PytorchScaler::check_gradients() {
  if (!options_.gradients_on_device) return;
  found_inf_ = take(Type::fp32);
  const meta::Holder inverse_scale(take(Type::fp32));
  if (options_.shards > 1) take_and_release(Type::fp32);
}

void PytorchScaler::unscale() {
  Block inverse = [&] {
    Block wide = take(Type::fp64);
    const meta::Holder reciprocal(take(Type::fp64));
    wide = nullptr;
    return take(Type::fp32);
  }();
  const meta::Holder found_inf(take(Type::fp32));
  check_gradients();
  inverse = nullptr;
  is_unscaled_ = true;
}

/// Steps an optimizer with fused=True, which gets the scale and the overflow flag as tensors of its
/// own.
void PytorchScaler::step_fused(const std::function<void()>& optimizer_step) {
  if (!is_unscaled_) {
    Block no_scale = take(Type::fp32);
    const meta::Holder found_inf(take(Type::fp32));
    check_gradients();
    no_scale = nullptr;
  }
  Block moved = options_.gradients_on_device ? nullptr : take(Type::fp32);
  const meta::Holder found_inf(take(Type::fp32));
  moved = nullptr;
  const meta::Holder grad_scale(is_unscaled_ ? nullptr : take(Type::fp32));
  optimizer_step();
}

void PytorchScaler::step(const std::function<void()>& optimizer_step) {
  if (options_.is_fused) return step_fused(optimizer_step);
  if (!is_unscaled_) unscale();
  optimizer_step();
}

void PytorchScaler::update() {
  const meta::Holder moved(options_.gradients_on_device ? nullptr : take(Type::fp32));
  found_inf_ = nullptr;
  is_unscaled_ = false;
}

}  // namespace shardlens::planner
