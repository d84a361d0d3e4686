// The units of the MLP and of the simplified transformer.
// B batch, T tokens, D width, V vocabulary.
#include <ATen/ATen.h>

#include <stdexcept>

#include "models/units.h"

namespace shardlens::models {

namespace {

constexpr double kLayerNormEps = 1e-5;  // nn.LayerNorm's default

/// [B, in] -> [B, out]; a batch of features comes as fp32.
at::Tensor dense(const at::Tensor& input, Parameters p) {
  return linear(input.to(p[0].scalar_type()), p[0], p[1]);
}

at::Tensor dense_relu(const at::Tensor& input, Parameters p) { return dense(input, p).relu(); }

/// [B, T, D] -> [B, T, D]
at::Tensor attention(const at::Tensor& input, Parameters p) {
  return input + linear(layer_norm(input, p[0], p[1], kLayerNormEps), p[2], p[3]);
}

/// [B, T, D] -> [B, T, D]
at::Tensor mlp(const at::Tensor& input, Parameters p) {
  const at::Tensor hidden = linear(layer_norm(input, p[0], p[1], kLayerNormEps), p[2], p[3]).relu();
  return input + linear(hidden, p[4], p[5]);
}

/// [B, T, D] -> [B * T, V]
at::Tensor head(const at::Tensor& input, Parameters p) {
  return linear(input.reshape({-1, input.size(-1)}), p[0], p[1]);
}

}  // namespace

Forward mlp_unit(UnitKind kind) {
  switch (kind) {
    case UnitKind::mlp_input:
    case UnitKind::mlp_hidden:
      return dense_relu;
    case UnitKind::mlp_output:
      return dense;
    default:
      throw std::logic_error("no unit of an MLP");
  }
}

Forward transformer_unit(UnitKind kind) {
  switch (kind) {
    case UnitKind::transformer_attention:
      return attention;
    case UnitKind::transformer_mlp:
      return mlp;
    case UnitKind::transformer_head:
      return head;
    default:
      throw std::logic_error("no unit of a transformer");
  }
}

}  // namespace shardlens::models
