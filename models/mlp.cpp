#include "models/mlp.h"

#include <fmt/format.h>

#include <array>
#include <optional>

namespace shardlens::models {
namespace {

constexpr std::array<SizeKey<MlpSizes>, 4> kMlpKeys = {{
    {"inputs", &MlpSizes::inputs, kMostMlpWidth},
    {"width", &MlpSizes::width, kMostWidth},
    {"layers", &MlpSizes::layers, kMostLayers, kOptional},
    {"classes", &MlpSizes::classes, kMostClasses},
}};

Problem mlp_problem(const MlpSizes& sizes) {
  if (auto problem = range_problem(sizes)) return problem;
  const auto width = static_cast<double>(sizes.width);
  const auto ends = static_cast<double>(sizes.inputs + sizes.classes);
  return numel_problem(sizes.width, width * (ends + width * static_cast<double>(sizes.layers)));
}

ModelSpec build_mlp(std::string name, const MlpSizes& sizes) {
  SpecBuilder builder(std::move(name), sizes);
  builder.spec.sample = {InputKind::features, {sizes.inputs}, {}, sizes.classes};
  int64_t in = sizes.inputs;
  for (int64_t layer = 1; layer <= sizes.layers + 1; ++layer) {
    const bool is_first = layer == 1, is_last = layer > sizes.layers;
    const MlpUnit kind = is_last ? MlpUnit::output : is_first ? MlpUnit::input : MlpUnit::hidden;
    const std::string layer_name = fmt::format("layer{}", layer);
    const int64_t out = is_last ? sizes.classes : sizes.width;
    UnitSpec& unit =
        builder.add_unit(layer_name, kind, 1, builder.add_linear(layer_name, out, in, layer_name));
    unit.backward_reads_parameters = !is_first;
    in = out;
  }
  return std::move(builder.spec);
}

}  // namespace

std::span<const SizeKey<MlpSizes>> keys_of(const MlpSizes&) { return kMlpKeys; }

std::vector<std::pair<std::string, MlpSizes>> presets_of(const MlpSizes&) {
  return {{"simple-model", {.inputs = 1024, .width = 1024, .layers = 1, .classes = 10}}};
}

ModelSpec make_spec(std::string name, const MlpSizes& sizes) {
  if (const auto problem = mlp_problem(sizes)) refuse_sizes(name, *problem);
  return build_mlp(std::move(name), sizes);
}

}  // namespace shardlens::models
