// The family `vit`: torchvision's VisionTransformer (dropout 0, its default).
// B batch, C channels, n patches a side, p patch size in px, D width, H heads, T = n * n + 1
// tokens. models/units.h describes `Ops`.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.h"
#include "models/spec.h"
#include "models/spec_builder.h"

namespace shardlens::models {

/// Holds the sizes of a vision transformer, as in torchvision.models.VisionTransformer.
struct VitSizes {
  static constexpr std::string_view kFamily = "vit";  // in a model file

  int64_t image_px = 0;  // images are square
  int64_t patch_px = 0;  // divides image_px
  int64_t channels = 0;
  int64_t layers = 0;
  int64_t heads = 0;  // divides width
  int64_t width = 0;  // torchvision's hidden_dim
  int64_t mlp_width = 0;
  int64_t classes = 0;

  int64_t patches() const { return (image_px / patch_px) * (image_px / patch_px); }
  int64_t tokens() const { return patches() + 1; }  // the class token comes first

  bool operator==(const VitSizes&) const = default;
};

enum class VitUnit { embed, attention, mlp, head };

/// Returns the sizes by their names in a model file.
std::span<const SizeKey<VitSizes>> keys_of(const VitSizes& family);
/// Returns the models that are known by name.
std::vector<std::pair<std::string, VitSizes>> presets_of(const VitSizes& family);
/// Makes a model of any sizes. Throws std::invalid_argument if they do not divide, or overflow.
ModelSpec make_spec(std::string name, const VitSizes& sizes);

template <class Ops>
class VitUnits {
 public:
  using Tensor = typename Ops::Tensor;
  using Parameters = std::span<const Tensor>;

  explicit VitUnits(const VitSizes& sizes) : sizes_(sizes) {}

  Tensor run(int kind, const Tensor& input, Parameters p) const {
    switch (static_cast<VitUnit>(kind)) {
      case VitUnit::embed:
        return embed(input, p);
      case VitUnit::attention:
        return attention(input, p);
      case VitUnit::mlp:
        return mlp(input, p);
      case VitUnit::head:
        return head(input, p);
    }
    unreachable("not a unit of a vision transformer");
  }

 private:
  static constexpr double kLayerNormEps = 1e-6;

  /// Cuts images into patches: [B, C, n * p, n * p] -> [B, n * n, C * p * p]. A convolution whose
  /// stride is its kernel size is a linear layer over patches, with the convolution's weight read
  /// as a matrix.
  Tensor patches(const Tensor& images) const {
    const int64_t batch = images.size(0), channels = images.size(1);
    const int64_t patch = sizes_.patch_px, side = images.size(2) / patch;
    return images.reshape({batch, channels, side, patch, side, patch})
        .permute({0, 2, 4, 1, 3, 5})
        .reshape({batch, side * side, channels * patch * patch});
  }

  /// Runs the embedding: [B, C, px, px] fp32 -> [B, T, D] in the parameters' dtype.
  Tensor embed(const Tensor& images, Parameters p) const {
    const Tensor &conv_weight = p[0], &conv_bias = p[1], &class_token = p[2], &position = p[3];
    const Tensor weight = conv_weight.reshape({sizes_.width, -1});
    const Tensor tokens = Ops::linear(patches(images.to(weight.scalar_type())), weight, conv_bias);
    return Ops::cat({class_token.expand({images.size(0), -1, -1}), tokens}, 1) + position;
  }

  /// Runs an attention unit: [B, T, D] -> [B, T, D].
  Tensor attention(const Tensor& input, Parameters p) const {
    const int64_t batch = input.size(0), tokens = input.size(1);
    const int64_t heads = sizes_.heads, head_width = sizes_.width / heads;
    // The product is cut before the heads are moved, so that backward writes the gradients side by
    // side, as the linear layer wants them: one copy less than with a permute in front.
    const std::vector<Tensor> qkv =
        Ops::linear(Ops::layer_norm(input, p[0], p[1], kLayerNormEps), p[2], p[3], InputUse::spent)
            .view({batch, tokens, 3, heads, head_width})
            .unbind(2);  // each [B, T, H, D / H]
    const Tensor mixed = Ops::attention(qkv[0].transpose(1, 2), qkv[1].transpose(1, 2),
                                        qkv[2].transpose(1, 2), /*causal=*/false)
                             .transpose(1, 2)
                             .reshape({batch, tokens, sizes_.width});
    return input + Ops::linear(mixed, p[4], p[5]);
  }

  /// Runs an MLP unit: [B, T, D] -> [B, T, D].
  Tensor mlp(const Tensor& input, Parameters p) const {
    const Tensor hidden = Ops::gelu(Ops::linear(Ops::layer_norm(input, p[0], p[1], kLayerNormEps),
                                                p[2], p[3], InputUse::spent));
    return input + Ops::linear(hidden, p[4], p[5], InputUse::spent);
  }

  /// Runs the head: [B, T, D] -> [B, classes]. Only the class token is normalised and classified.
  Tensor head(const Tensor& input, Parameters p) const {
    return Ops::linear(Ops::layer_norm(input.select(1, 0), p[0], p[1], kLayerNormEps), p[2], p[3],
                       InputUse::spent);
  }

  VitSizes sizes_;
};

template <class Ops>
VitUnits<Ops> units_of(const VitSizes& sizes) {
  return VitUnits<Ops>(sizes);
}

}  // namespace shardlens::models
