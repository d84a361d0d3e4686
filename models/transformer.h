// The family `transformer`: the simplified one of "PyTorch FSDP2: A Practical Guide".
// B batch, T tokens, D width, V vocabulary. models/units.h describes `Ops`.
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

/// Holds the sizes of the simplified transformer of "PyTorch FSDP2: A Practical Guide", which has a
/// linear layer in place of attention.
struct TransformerSizes {
  static constexpr std::string_view kFamily = "transformer";  // in a model file

  int64_t layers = 0;
  int64_t width = 0;
  int64_t vocab = 0;
  int64_t seq = 512;  // tokens a sample

  int64_t mlp_width() const { return 4 * width; }

  bool operator==(const TransformerSizes&) const = default;
};

enum class TransformerUnit { embed, attention, mlp, head };

/// Returns the sizes by their names in a model file.
std::span<const SizeKey<TransformerSizes>> keys_of(const TransformerSizes& family);
/// Returns the models that are known by name.
std::vector<std::pair<std::string, TransformerSizes>> presets_of(const TransformerSizes& family);
/// Makes a model of any sizes. Throws std::invalid_argument if they do not divide, or overflow.
ModelSpec make_spec(std::string name, const TransformerSizes& sizes);

template <class Ops>
struct TransformerUnits {
  using Tensor = typename Ops::Tensor;
  using Parameters = std::span<const Tensor>;

  static Tensor run(int kind, const Tensor& input, Parameters p) {
    switch (static_cast<TransformerUnit>(kind)) {
      case TransformerUnit::embed:
        return Ops::embedding(p[0], input);
      case TransformerUnit::attention:
        return attention(input, p);
      case TransformerUnit::mlp:
        return mlp(input, p);
      case TransformerUnit::head:
        return head(input, p);
    }
    unreachable("not a unit of a transformer");
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

template <class Ops>
TransformerUnits<Ops> units_of(const TransformerSizes&) {
  return {};
}

}  // namespace shardlens::models
