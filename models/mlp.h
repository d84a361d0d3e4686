// The family `mlp`: linear layers with ReLU between them.
// B batch. models/units.h describes `Ops`.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.h"
#include "models/spec_builder.h"

namespace shardlens::models {

/// Holds the sizes of an MLP: linear layers with ReLU between them.
struct MlpSizes {
  static constexpr std::string_view kFamily = "mlp";  // in a model file

  int64_t inputs = 0;
  int64_t width = 0;
  int64_t layers = 1;  // hidden ones
  int64_t classes = 0;

  bool operator==(const MlpSizes&) const = default;
};

enum class MlpUnit { input, hidden, output };  // all but the output end in ReLU

/// Returns the sizes by their names in a model file.
std::span<const SizeKey<MlpSizes>> keys_of(const MlpSizes& family);
/// Returns the models that are known by name.
std::vector<std::pair<std::string, MlpSizes>> presets_of(const MlpSizes& family);
/// Makes a model of any sizes. Throws std::invalid_argument if they do not divide, or overflow.
ModelSpec make_spec(std::string name, const MlpSizes& sizes);

template <class Ops>
struct MlpUnits {
  using Tensor = typename Ops::Tensor;
  using Parameters = std::span<const Tensor>;

  /// Runs a unit: [B, in] -> [B, out]. A batch of features comes as fp32.
  static Tensor run(int kind, const Tensor& input, Parameters p) {
    switch (static_cast<MlpUnit>(kind)) {
      case MlpUnit::input:
      case MlpUnit::hidden:
        return dense(input, p).relu();
      case MlpUnit::output:
        return dense(input, p);
    }
    unreachable("not a unit of an MLP");
  }

 private:
  static Tensor dense(const Tensor& input, Parameters p) {
    return Ops::linear(input.to(p[0].scalar_type()), p[0], p[1]);
  }
};

template <class Ops>
MlpUnits<Ops> units_of(const MlpSizes&) {
  return {};
}

}  // namespace shardlens::models
