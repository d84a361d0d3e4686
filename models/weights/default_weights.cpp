#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <stdexcept>

#include "models/weights/weights.h"

namespace shardlens::models {

namespace {

bool is_norm(const ParameterSpec& parameter) {
  return parameter.name.find("norm") != std::string::npos;
}

bool is_matrix(const ParameterSpec& parameter) { return parameter.shape.size() > 1; }

int64_t fan_in(const ParameterSpec& matrix) { return matrix.numel() / matrix.shape[0]; }

/// Draws weights by PyTorch's defaults. A norm's weight is 1, its bias 0. A linear layer's bias
/// stands right behind its weight, which decides the range that the bias is drawn from.
class DefaultWeights {
 public:
  DefaultWeights(const ModelSpec& spec, uint64_t seed)
      : spec_(spec), generator_(at::detail::createCPUGenerator(seed)) {}

  at::Tensor draw(size_t index) {
    const ParameterSpec& parameter = spec_.parameters[index];
    const bool is_bias = parameter.name.ends_with(".bias");
    if (!is_matrix(parameter)) {
      const ParameterSpec* before = index > 0 ? &spec_.parameters[index - 1] : nullptr;
      const bool is_layers = is_bias && !is_norm(parameter) && before && is_matrix(*before);
      if (is_layers) return draw_bias(parameter.numel(), fan_in(*before), generator_);
      return at::full(parameter.shape, is_bias ? 0.0 : 1.0);
    }
    if (parameter.name.ends_with("embeddings.weight")) {
      return at::empty(parameter.shape).normal_(0, 1, generator_);
    }
    return draw_kaiming(parameter.shape, fan_in(parameter), generator_);
  }

 private:
  const ModelSpec& spec_;
  at::Generator generator_;
};

}  // namespace

at::Tensor draw_uniform(const std::vector<int64_t>& shape, double bound, at::Generator& generator) {
  return at::empty(shape).uniform_(-bound, bound, generator);
}

at::Tensor draw_kaiming(const std::vector<int64_t>& shape, int64_t fan_in,
                        at::Generator& generator) {
  // The operations are in PyTorch's order, so that the rounding is the same.
  const double gain = std::sqrt(2.0 / (1 + std::pow(std::sqrt(5.0), 2)));
  const double std = gain / std::sqrt(static_cast<double>(fan_in));
  return draw_uniform(shape, std::sqrt(3.0) * std, generator);
}

at::Tensor draw_bias(int64_t out, int64_t fan_in, at::Generator& generator) {
  return draw_uniform({out}, 1 / std::sqrt(static_cast<double>(fan_in)), generator);
}

void draw_modules(const ModelSpec& spec, uint64_t seed, const ParameterReceiver& take) {
  DefaultWeights weights(spec, seed);
  for (size_t i = 0; i < spec.parameters.size(); ++i) take(static_cast<int>(i), weights.draw(i));
}

void draw_parameters(const OwnModel& model, uint64_t seed, const ParameterReceiver& take) {
  if (!model.draw) return draw_parameters(model.spec, seed, take);
  at::Generator generator = at::detail::createCPUGenerator(seed);
  for (size_t i = 0; i < model.spec.parameters.size(); ++i) {
    const ParameterSpec& parameter = model.spec.parameters[i];
    const at::Tensor value = model.draw(parameter, generator);
    if (value.sizes() != at::IntArrayRef(parameter.shape) || value.scalar_type() != at::kFloat) {
      throw std::invalid_argument(
          fmt::format("model {}: the start weight of {} is {} of shape [{}], not fp32 of [{}]; "
                      "fix the model's draw",
                      model.spec.name, parameter.name, c10::toString(value.scalar_type()),
                      fmt::join(value.sizes(), ", "), fmt::join(parameter.shape, ", ")));
    }
    take(static_cast<int>(i), value);
  }
}

void draw_normal(const ModelSpec& spec, uint64_t seed, const ParameterReceiver& take) {
  constexpr double kDeviation = 0.02;  // Hugging Face's initializer_range
  at::Generator generator = at::detail::createCPUGenerator(seed);
  for (size_t i = 0; i < spec.parameters.size(); ++i) {
    const ParameterSpec& parameter = spec.parameters[i];
    take(static_cast<int>(i), is_norm(parameter)
                                  ? at::ones(parameter.shape)
                                  : at::empty(parameter.shape).normal_(0, kDeviation, generator));
  }
}

}  // namespace shardlens::models
