#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <fmt/format.h>

#include <cmath>
#include <map>
#include <tuple>

#include "models/vit.h"
#include "models/weights/weights.h"

namespace shardlens::models {

namespace {

/// Draws in the order in which torchvision's constructor draws, also what it overwrites later: only
/// then are the remaining numbers the same.
class VitWeights {
 public:
  VitWeights(const ModelSpec& spec, uint64_t seed, const ParameterReceiver& take)
      : spec_(spec), take_(take), generator_(at::detail::createCPUGenerator(seed)) {
    for (size_t i = 0; i < spec.parameters.size(); ++i) {
      index_[spec.parameters[i].name] = static_cast<int>(i);
    }
  }

  void draw() {
    const VitSizes& v = spec_.as<VitSizes>();
    draw_conv_default(kTorchvisionChannels);
    put("class_token", zeros("class_token"));
    put("encoder.pos_embedding", normal("encoder.pos_embedding", 0.02));
    for (int64_t layer = 0; layer < v.layers; ++layer) {
      draw_block(fmt::format("encoder.layers.encoder_layer_{}.", layer));
    }
    put_layer_norm("encoder.ln");
    draw_linear_default(v.classes, v.width);
    draw_conv();
    put("heads.head.weight", zeros("heads.head.weight"));
    put("heads.head.bias", zeros("heads.head.bias"));
  }

 private:
  static constexpr int64_t kTorchvisionChannels = 3;

  void draw_block(const std::string& block) {
    const VitSizes& v = spec_.as<VitSizes>();
    put_layer_norm(block + "ln_1");
    const at::Tensor out_weight = draw_linear_default(v.width, v.width);
    put(block + "self_attention.out_proj.weight", out_weight);
    put(block + "self_attention.out_proj.bias", zeros(block + "self_attention.out_proj.bias"));
    put_xavier(block + "self_attention.in_proj_weight");
    put(block + "self_attention.in_proj_bias", zeros(block + "self_attention.in_proj_bias"));
    put_layer_norm(block + "ln_2");
    draw_linear_default(v.mlp_width, v.width);
    draw_linear_default(v.width, v.mlp_width);
    for (const char* layer : {"mlp.0", "mlp.3"}) {
      put_xavier(block + layer + ".weight");
      put(block + layer + ".bias", normal(block + layer + ".bias", 1e-6));
    }
  }

  /// Draws the convolution: the constructor's last draw, or the tutorial's replacement after it.
  void draw_conv() {
    const VitSizes& v = spec_.as<VitSizes>();
    const auto fan_in = static_cast<double>(kTorchvisionChannels * v.patch_px * v.patch_px);
    at::Tensor weight = truncated_normal({v.width, kTorchvisionChannels, v.patch_px, v.patch_px},
                                         std::sqrt(1 / fan_in));
    at::Tensor bias = zeros("conv_proj.bias");
    if (v.channels != kTorchvisionChannels) std::tie(weight, bias) = draw_conv_default(v.channels);
    put("conv_proj.weight", weight);
    put("conv_proj.bias", bias);
  }

  /// Draws as nn.Conv2d does: weight, then bias.
  std::pair<at::Tensor, at::Tensor> draw_conv_default(int64_t channels) {
    const VitSizes& v = spec_.as<VitSizes>();
    const int64_t fan_in = channels * v.patch_px * v.patch_px;
    at::Tensor weight =
        draw_kaiming({v.width, channels, v.patch_px, v.patch_px}, fan_in, generator_);
    return {weight, draw_bias(v.width, fan_in, generator_)};
  }

  /// Draws as nn.Linear does: weight, then bias. Returns only the weight, since the bias is always
  /// replaced.
  at::Tensor draw_linear_default(int64_t out, int64_t in) {
    at::Tensor weight = draw_kaiming({out, in}, in, generator_);
    draw_bias(out, in, generator_);
    return weight;
  }

  void put_layer_norm(const std::string& name) {
    put(name + ".weight", at::ones({spec_.as<VitSizes>().width}));
    put(name + ".bias", at::zeros({spec_.as<VitSizes>().width}));
  }

  void put_xavier(const std::string& name) {
    const auto& shape = shape_of(name);
    const double std = 1.0 * std::sqrt(2.0 / static_cast<double>(shape[0] + shape[1]));
    put(name, draw_uniform(shape, std::sqrt(3.0) * std, generator_));
  }

  at::Tensor normal(const std::string& name, double std) {
    return at::empty(shape_of(name)).normal_(0, std, generator_);
  }

  /// Draws as trunc_normal_ does with its default limits, -2 and 2.
  at::Tensor truncated_normal(const std::vector<int64_t>& shape, double std) {
    const auto cdf = [](double x) { return (1.0 + std::erf(x / std::sqrt(2.0))) / 2.0; };
    at::Tensor tensor = at::empty(shape);
    tensor.uniform_(2 * cdf(-2 / std) - 1, 2 * cdf(2 / std) - 1, generator_);
    return tensor.erfinv_().mul_(std * std::sqrt(2.0)).clamp_(-2.0, 2.0);
  }

  at::Tensor zeros(const std::string& name) { return at::zeros(shape_of(name)); }

  const std::vector<int64_t>& shape_of(const std::string& name) const {
    return spec_.parameters[index_.at(name)].shape;
  }

  void put(const std::string& name, const at::Tensor& value) { take_(index_.at(name), value); }

  const ModelSpec& spec_;
  const ParameterReceiver& take_;
  at::Generator generator_;
  std::map<std::string, int> index_;
};

}  // namespace

void draw_vit(const ModelSpec& spec, uint64_t seed, const ParameterReceiver& take) {
  VitWeights(spec, seed, take).draw();
}

}  // namespace shardlens::models
