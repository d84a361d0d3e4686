#include "models/transformer.h"

#include <fmt/format.h>

#include <array>
#include <optional>

namespace shardlens::models {
namespace {

constexpr std::array<SizeKey<TransformerSizes>, 4> kTransformerKeys = {{
    {"layers", &TransformerSizes::layers, kMostLayers},
    {"width", &TransformerSizes::width, kMostWidth},
    {"vocab", &TransformerSizes::vocab, kMostClasses},
    {"seq", &TransformerSizes::seq, kMostSeq, kOptional},
}};

Problem transformer_problem(const TransformerSizes& sizes) {
  if (auto problem = range_problem(sizes)) return problem;
  const auto width = static_cast<double>(sizes.width);
  const double block = 9 * width * width + 10 * width;
  return numel_problem(sizes.width, static_cast<double>(sizes.vocab) * (2 * width + 1) +
                                        static_cast<double>(sizes.layers) * block);
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
  builder.add_unit(fmt::format("attention{}", layer), TransformerUnit::attention, sizes.seq,
                   joined(norm1, attention));
  builder.add_unit(fmt::format("mlp{}", layer), TransformerUnit::mlp, sizes.seq,
                   joined(norm2, joined(up, down)));
}

ModelSpec build_transformer(std::string name, const TransformerSizes& sizes) {
  SpecBuilder builder(std::move(name), sizes);
  builder.spec.sample = {InputKind::tokens, {sizes.seq}, {}, sizes.vocab};
  builder.spec.loss = LossKind::sum;
  const int embed = builder.add("tok_embeddings.weight", {sizes.vocab, sizes.width}, "embed");
  builder.add_embedding(TransformerUnit::embed, sizes.seq, embed);
  for (int64_t layer = 0; layer < sizes.layers; ++layer) {
    add_transformer_block(builder, layer, sizes);
  }
  builder.add_unit("head", TransformerUnit::head, sizes.seq,
                   builder.add_linear("output", sizes.vocab, sizes.width, "head"));
  return std::move(builder.spec);
}

}  // namespace

std::span<const SizeKey<TransformerSizes>> keys_of(const TransformerSizes&) {
  return kTransformerKeys;
}

std::vector<std::pair<std::string, TransformerSizes>> presets_of(const TransformerSizes&) {
  return {{"transformer", {.layers = 3, .width = 512, .vocab = 10000}}};
}

ModelSpec make_spec(std::string name, const TransformerSizes& sizes) {
  if (const auto problem = transformer_problem(sizes)) refuse_sizes(name, *problem);
  return build_transformer(std::move(name), sizes);
}

}  // namespace shardlens::models
