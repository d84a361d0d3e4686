#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <utility>

#include "models/model.h"

namespace shardlens::models {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

thread_local GradientPlaces* current_places = nullptr;

at::Tensor as_matrix(const at::Tensor& tensor) { return tensor.reshape({-1, tensor.size(-1)}); }

at::Tensor weight_gradient_of(const at::Tensor& gradient, const at::Tensor& input,
                              const at::Tensor& weight) {
  at::Tensor place = GradientPlaces::place_of(weight);
  if (!place.defined()) return at::mm(gradient.t(), as_matrix(input));
  at::mm_out(place, gradient.t(), as_matrix(input));
  return place;
}

/// Of input and weight. `gradient` [rows, out].
variable_list product_gradients(AutogradContext* context, const at::Tensor& gradient) {
  const variable_list saved = context->get_saved_variables();
  const at::Tensor& input = saved[0];
  at::Tensor weight_gradient, input_gradient;
  if (context->needs_input_grad(1)) weight_gradient = weight_gradient_of(gradient, input, saved[1]);
  if (context->needs_input_grad(0)) {
    input_gradient = at::mm(gradient, saved[1]).view(input.sizes());
  }
  return {std::move(input_gradient), std::move(weight_gradient)};
}

struct Linear : torch::autograd::Function<Linear> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input,
                            const at::Tensor& weight, const at::Tensor& bias) {
    context->save_for_backward({input, weight});
    return at::linear(input, weight, bias);
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const at::Tensor gradient = as_matrix(gradients[0]);
    variable_list result = product_gradients(context, gradient);
    at::Tensor& bias_gradient = result.emplace_back();
    if (context->needs_input_grad(2)) {
      bias_gradient = at::mv(gradient.t(), at::ones({gradient.size(0)}, gradient.options()));
    }
    return result;
  }
};

struct Product : torch::autograd::Function<Product> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input,
                            const at::Tensor& weight) {
    context->save_for_backward({input, weight});
    return at::linear(input, weight);
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    return product_gradients(context, as_matrix(gradients[0]));
  }
};

}  // namespace

GradientPlaces::GradientPlaces(Find find)
    : find_(std::move(find)), outer_(std::exchange(current_places, this)) {}

GradientPlaces::~GradientPlaces() { current_places = outer_; }

at::Tensor GradientPlaces::place_of(const at::Tensor& weight) {
  return current_places == nullptr ? at::Tensor() : current_places->find_(weight);
}

at::Tensor linear(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias) {
  const at::ScalarType dtype = input.scalar_type();
  return Linear::apply(input, weight.to(dtype), bias.to(dtype));
}

at::Tensor project(const at::Tensor& input, const at::Tensor& weight) {
  return Product::apply(input, weight.to(input.scalar_type()));
}

}  // namespace shardlens::models
