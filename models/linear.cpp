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

/// True if every row is the first one, in the same memory, as in the gradient of a plain sum or
/// mean.
bool repeats_a_row(const at::Tensor& matrix) { return matrix.size(0) > 1 && matrix.stride(0) == 0; }

at::Tensor ones_for_rows(const at::Tensor& gradient) {
  return at::ones({gradient.size(0)}, gradient.options());
}

/// Returns memory [rows, in] for the gradient of the input: the input's own, if it is spent.
at::Tensor memory_for_gradient_of(const at::Tensor& input, InputUse use) {
  const at::Tensor matrix = as_matrix(input);
  return use == InputUse::spent && matrix.is_alias_of(input)
             ? matrix
             : at::empty(matrix.sizes(), input.options());
}

/// Returns the gradients of input and weight if `gradient` [rows, out] repeats one row. BLAS would
/// want all rows written out, which takes as much as the logits of a batch; a sum over the input's
/// rows and one row of the product give the same result.
variable_list gradients_of_one_row(AutogradContext* context, const at::Tensor& gradient,
                                   InputUse use) {
  const variable_list saved = context->get_saved_variables();
  const at::Tensor &input = saved[0], &weight = saved[1];
  const at::Tensor row = gradient.select(0, 0).contiguous();
  at::Tensor weight_gradient, input_gradient;
  if (context->needs_input_grad(1)) {
    const at::Tensor sums = at::mv(as_matrix(input).t(), ones_for_rows(gradient));
    weight_gradient = GradientPlaces::place_of(weight);
    if (!weight_gradient.defined()) weight_gradient = at::empty(weight.sizes(), weight.options());
    at::mul_out(weight_gradient, row.unsqueeze(1), sums);
  }
  if (context->needs_input_grad(0)) {
    const at::Tensor rows = memory_for_gradient_of(input, use);
    rows.copy_(at::mv(weight.t(), row).expand(rows.sizes()));
    input_gradient = rows.view(input.sizes());
  }
  return {std::move(input_gradient), std::move(weight_gradient)};
}

/// Returns the gradients of input and weight, from `gradient` [rows, out]. The weight's is computed
/// first: after that nobody needs the values of a spent input.
variable_list product_gradients(AutogradContext* context, const at::Tensor& gradient,
                                InputUse use) {
  if (repeats_a_row(gradient)) return gradients_of_one_row(context, gradient, use);
  const variable_list saved = context->get_saved_variables();
  const at::Tensor& input = saved[0];
  at::Tensor weight_gradient, input_gradient;
  if (context->needs_input_grad(1)) weight_gradient = weight_gradient_of(gradient, input, saved[1]);
  if (context->needs_input_grad(0)) {
    at::Tensor rows = memory_for_gradient_of(input, use);
    input_gradient = at::mm_out(rows, gradient, saved[1]).view(input.sizes());
  }
  return {std::move(input_gradient), std::move(weight_gradient)};
}

/// The autograd node of linear.
template <InputUse kUse>
struct Linear : torch::autograd::Function<Linear<kUse>> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input,
                            const at::Tensor& weight, const at::Tensor& bias) {
    context->save_for_backward({input, weight});
    return at::linear(input, weight, bias);
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const at::Tensor gradient = as_matrix(gradients[0]);
    variable_list result = product_gradients(context, gradient, kUse);
    at::Tensor& bias_gradient = result.emplace_back();
    if (!context->needs_input_grad(2)) return result;
    bias_gradient = repeats_a_row(gradient) ? gradient.select(0, 0) * gradient.size(0)
                                            : at::mv(gradient.t(), ones_for_rows(gradient));
    return result;
  }
};

template <InputUse kUse>
struct Product : torch::autograd::Function<Product<kUse>> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input,
                            const at::Tensor& weight) {
    context->save_for_backward({input, weight});
    return at::linear(input, weight);
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    return product_gradients(context, as_matrix(gradients[0]), kUse);
  }
};

}  // namespace

GradientPlaces::GradientPlaces(Finder find)
    : find_(std::move(find)), outer_(std::exchange(current_places, this)) {}

GradientPlaces::~GradientPlaces() { current_places = outer_; }

at::Tensor GradientPlaces::place_of(const at::Tensor& weight) {
  return current_places == nullptr ? at::Tensor() : current_places->find_(weight);
}

at::Tensor linear(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias,
                  InputUse use) {
  const at::ScalarType dtype = input.scalar_type();
  return use == InputUse::spent
             ? Linear<InputUse::spent>::apply(input, weight.to(dtype), bias.to(dtype))
             : Linear<InputUse::kept>::apply(input, weight.to(dtype), bias.to(dtype));
}

at::Tensor project(const at::Tensor& input, const at::Tensor& weight, InputUse use) {
  const at::ScalarType dtype = input.scalar_type();
  return use == InputUse::spent ? Product<InputUse::spent>::apply(input, weight.to(dtype))
                                : Product<InputUse::kept>::apply(input, weight.to(dtype));
}

}  // namespace shardlens::models
