// Builds the specs of two small families from texts that teach sharding: the MLP `simple-model` and
// the simplified `transformer`.
#include <fmt/format.h>

#include <array>

#include "models/families.h"

namespace shardlens::models {
namespace {

constexpr std::array<SizeKey<MlpSizes>, 4> kMlpKeys = {{
    {"inputs", &MlpSizes::inputs, kMostMlpWidth},
    {"width", &MlpSizes::width, kMostWidth},
    {"layers", &MlpSizes::layers, kMostLayers, kOptional},
    {"classes", &MlpSizes::classes, kMostClasses},
}};

constexpr std::array<SizeKey<TransformerSizes>, 4> kTransformerKeys = {{
    {"layers", &TransformerSizes::layers, kMostLayers},
    {"width", &TransformerSizes::width, kMostWidth},
    {"vocab", &TransformerSizes::vocab, kMostClasses},
    {"seq", &TransformerSizes::seq, kMostSeq, kOptional},
}};

std::optional<std::string> mlp_problem(const MlpSizes& sizes) {
  if (auto problem = range_problem(sizes)) return problem;
  const auto width = static_cast<double>(sizes.width);
  const auto ends = static_cast<double>(sizes.inputs + sizes.classes);
  return numel_problem(sizes.width, width * (ends + width * static_cast<double>(sizes.layers)));
}

std::optional<std::string> transformer_problem(const TransformerSizes& sizes) {
  if (auto problem = range_problem(sizes)) return problem;
  const auto width = static_cast<double>(sizes.width);
  const double block = 9 * width * width + 10 * width;
  return numel_problem(sizes.width, static_cast<double>(sizes.vocab) * (2 * width + 1) +
                                        static_cast<double>(sizes.layers) * block);
}

ModelSpec build_mlp(std::string name, const MlpSizes& sizes) {
  SpecBuilder builder(std::move(name), Family::mlp);
  builder.spec.mlp = sizes;
  builder.spec.sample = {InputKind::features, {sizes.inputs}, {}, sizes.classes};
  int64_t in = sizes.inputs;
  for (int64_t layer = 1; layer <= sizes.layers + 1; ++layer) {
    const bool is_first = layer == 1, is_last = layer > sizes.layers;
    const UnitKind kind = is_last    ? UnitKind::mlp_output
                          : is_first ? UnitKind::mlp_input
                                     : UnitKind::mlp_hidden;
    const std::string layer_name = fmt::format("layer{}", layer);
    const int64_t out = is_last ? sizes.classes : sizes.width;
    UnitSpec& unit =
        builder.add_unit(layer_name, kind, builder.add_linear(layer_name, out, in, layer_name));
    unit.backward_reads_parameters = !is_first;
    in = out;
  }
  return std::move(builder.spec);
}

void add_transformer_block(SpecBuilder& builder, int64_t layer, const TransformerSizes& sizes) {
  const std::string group = fmt::format("block{}", layer);
  const std::string prefix = fmt::format("layers.{}.", layer);
  const int64_t width = sizes.width;
  const auto attention = builder.add_linear(prefix + "attention", width, width, group);
  const auto up = builder.add_linear(prefix + "mlp.0", sizes.mlp_width(), width, group);
  const auto down = builder.add_linear(prefix + "mlp.2", width, sizes.mlp_width(), group);
  const auto norm1 = builder.add_layer_norm(prefix + "norm1", width, group);
  const auto norm2 = builder.add_layer_norm(prefix + "norm2", width, group);
  builder.add_unit(fmt::format("attention{}", layer), UnitKind::transformer_attention,
                   joined(norm1, attention));
  builder.add_unit(fmt::format("mlp{}", layer), UnitKind::transformer_mlp,
                   joined(norm2, joined(up, down)));
}

ModelSpec build_transformer(std::string name, const TransformerSizes& sizes) {
  SpecBuilder builder(std::move(name), Family::transformer);
  builder.spec.transformer = sizes;
  builder.spec.sample = {InputKind::tokens, {sizes.seq}, {}, sizes.vocab};
  builder.spec.loss = LossKind::sum;
  const int embed = builder.add("tok_embeddings.weight", {sizes.vocab, sizes.width}, "embed");
  builder.add_unit("embed", UnitKind::token_embed, {embed}).backward_reads_parameters = false;
  for (int64_t layer = 0; layer < sizes.layers; ++layer) {
    add_transformer_block(builder, layer, sizes);
  }
  builder.add_unit("head", UnitKind::transformer_head,
                   builder.add_linear("output", sizes.vocab, sizes.width, "head"));
  return std::move(builder.spec);
}

}  // namespace

std::span<const SizeKey<MlpSizes>> keys_of(const MlpSizes&) { return kMlpKeys; }
std::span<const SizeKey<TransformerSizes>> keys_of(const TransformerSizes&) {
  return kTransformerKeys;
}

ModelSpec make_mlp(std::string name, const MlpSizes& sizes) {
  if (const auto problem = mlp_problem(sizes)) refuse_sizes(name, *problem);
  return build_mlp(std::move(name), sizes);
}

ModelSpec make_transformer(std::string name, const TransformerSizes& sizes) {
  if (const auto problem = transformer_problem(sizes)) refuse_sizes(name, *problem);
  return build_transformer(std::move(name), sizes);
}

}  // namespace shardlens::models
