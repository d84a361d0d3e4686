// The units of torchvision's VisionTransformer (dropout 0, as its default is).
// B batch, C channels, n patches a side, p patch size in px, D width, H heads, T = n * n + 1
// tokens.
#include <ATen/ATen.h>

#include <stdexcept>

#include "models/units.h"

namespace shardlens::models {

namespace {

constexpr double kLayerNormEps = 1e-6;

/// [B, C, n * p, n * p] -> [B, n * n, C * p * p]: a convolution whose stride is its kernel size is
/// a linear layer over patches, with the convolution's weight read as a matrix.
at::Tensor patches(const at::Tensor& images, int64_t patch_px) {
  const int64_t batch = images.size(0), channels = images.size(1);
  const int64_t side = images.size(2) / patch_px;
  return images.reshape({batch, channels, side, patch_px, side, patch_px})
      .permute({0, 2, 4, 1, 3, 5})
      .reshape({batch, side * side, channels * patch_px * patch_px});
}

/// [B, C, px, px] fp32 -> [B, T, D] in the parameters' dtype
at::Tensor embed(const VitSizes& sizes, const at::Tensor& images, Parameters p) {
  const at::Tensor &conv_weight = p[0], &conv_bias = p[1], &class_token = p[2], &position = p[3];
  const at::Tensor weight = conv_weight.reshape({sizes.width, -1});
  const at::Tensor tokens =
      linear(patches(images.to(weight.scalar_type()), sizes.patch_px), weight, conv_bias);
  return at::cat({class_token.expand({images.size(0), -1, -1}), tokens}, 1) + position;
}

/// [B, T, D] -> [B, T, D]
at::Tensor attention(const VitSizes& sizes, const at::Tensor& input, Parameters p) {
  const int64_t batch = input.size(0), tokens = input.size(1);
  const int64_t heads = sizes.heads, head_width = sizes.width / heads;
  // Cut before the heads are moved, so that backward writes the gradients side by side, as the
  // linear layer wants them: one copy less than with a permute in front.
  const std::vector<at::Tensor> qkv =
      linear(layer_norm(input, p[0], p[1], kLayerNormEps), p[2], p[3])
          .view({batch, tokens, 3, heads, head_width})
          .unbind(2);  // each [B, T, H, D / H]
  const at::Tensor mixed =
      at::scaled_dot_product_attention(qkv[0].transpose(1, 2), qkv[1].transpose(1, 2),
                                       qkv[2].transpose(1, 2))
          .transpose(1, 2)
          .reshape({batch, tokens, sizes.width});
  return input + linear(mixed, p[4], p[5]);
}

/// [B, T, D] -> [B, T, D]
at::Tensor mlp(const at::Tensor& input, Parameters p) {
  const at::Tensor hidden =
      at::gelu(linear(layer_norm(input, p[0], p[1], kLayerNormEps), p[2], p[3]));
  return input + linear(hidden, p[4], p[5]);
}

/// [B, T, D] -> [B, classes]: only the class token is normalised and classified.
at::Tensor head(const at::Tensor& input, Parameters p) {
  return linear(layer_norm(input.select(1, 0), p[0], p[1], kLayerNormEps), p[2], p[3]);
}

}  // namespace

Forward vit_unit(const VitSizes& sizes, UnitKind kind) {
  switch (kind) {
    case UnitKind::vit_embed:
      return [sizes](const at::Tensor& x, Parameters p) { return embed(sizes, x, p); };
    case UnitKind::vit_attention:
      return [sizes](const at::Tensor& x, Parameters p) { return attention(sizes, x, p); };
    case UnitKind::vit_mlp:
      return [](const at::Tensor& x, Parameters p) { return mlp(x, p); };
    case UnitKind::vit_head:
      return [](const at::Tensor& x, Parameters p) { return head(x, p); };
    default:
      throw std::logic_error("no unit of a vision transformer");
  }
}

}  // namespace shardlens::models
