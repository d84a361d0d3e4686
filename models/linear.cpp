#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "models/model.h"

namespace shardlens::models {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

at::Tensor as_matrix(const at::Tensor& tensor) { return tensor.reshape({-1, tensor.size(-1)}); }

struct Linear : torch::autograd::Function<Linear> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input,
                            const at::Tensor& weight, const at::Tensor& bias) {
    context->save_for_backward({input, weight});
    return at::linear(input, weight, bias);
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor& input = saved[0];
    const at::Tensor gradient = as_matrix(gradients[0]);  // [rows, out]
    const at::Tensor ones = at::ones({gradient.size(0)}, gradient.options());
    const at::Tensor weight_gradient = at::mm(gradient.t(), as_matrix(input));
    const at::Tensor bias_gradient = at::mv(gradient.t(), ones);
    at::Tensor input_gradient;
    if (context->needs_input_grad(0)) {
      input_gradient = at::mm(gradient, saved[1]).view(input.sizes());
    }
    return {input_gradient, weight_gradient, bias_gradient};
  }
};

}  // namespace

at::Tensor linear(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias) {
  return Linear::apply(input, weight, bias);
}

}  // namespace shardlens::models
