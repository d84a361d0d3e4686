// The units of the MLP and of the simplified transformer.
// B batch, T tokens, D width, V vocabulary. models/units.h describes `Ops`.
#pragma once

#include <span>
#include <stdexcept>

#include "models/input_use.h"
#include "models/spec.h"

namespace shardlens::models {

template <class Ops>
struct MlpUnits {
  using Tensor = typename Ops::Tensor;
  using Parameters = std::span<const Tensor>;

  /// Runs a unit: [B, in] -> [B, out]. A batch of features comes as fp32.
  static Tensor run(UnitKind kind, const Tensor& input, Parameters p) {
    switch (kind) {
      case UnitKind::mlp_input:
      case UnitKind::mlp_hidden:
        return dense(input, p).relu();
      case UnitKind::mlp_output:
        return dense(input, p);
      default:
        throw std::logic_error("no unit of an MLP");
    }
  }

 private:
  static Tensor dense(const Tensor& input, Parameters p) {
    return Ops::linear(input.to(p[0].scalar_type()), p[0], p[1]);
  }
};

template <class Ops>
struct TransformerUnits {
  using Tensor = typename Ops::Tensor;
  using Parameters = std::span<const Tensor>;

  static Tensor run(UnitKind kind, const Tensor& input, Parameters p) {
    switch (kind) {
      case UnitKind::transformer_attention:
        return attention(input, p);
      case UnitKind::transformer_mlp:
        return mlp(input, p);
      case UnitKind::transformer_head:
        return head(input, p);
      default:
        throw std::logic_error("no unit of a transformer");
    }
  }

 private:
  static constexpr double kLayerNormEps = 1e-5;  // nn.LayerNorm's default

  /// Runs an attention unit: [B, T, D] -> [B, T, D].
  static Tensor attention(const Tensor& input, Parameters p) {
    return input + Ops::linear(Ops::layer_norm(input, p[0], p[1], kLayerNormEps), p[2], p[3],
                               InputUse::spent);
  }

  /// Runs an MLP unit: [B, T, D] -> [B, T, D].
  static Tensor mlp(const Tensor& input, Parameters p) {
    const Tensor hidden =
        Ops::linear(Ops::layer_norm(input, p[0], p[1], kLayerNormEps), p[2], p[3], InputUse::spent)
            .relu();
    return input + Ops::linear(hidden, p[4], p[5]);
  }

  /// Runs the head: [B, T, D] -> [B * T, V].
  static Tensor head(const Tensor& input, Parameters p) {
    return Ops::linear(input.reshape({-1, input.size(-1)}), p[0], p[1]);
  }
};

}  // namespace shardlens::models
