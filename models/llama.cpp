#include <fmt/format.h>

#include <array>

#include "models/llama.h"

namespace shardlens::models {
namespace {

constexpr std::array<SizeKey<LlamaSizes>, 10> kLlamaKeys = {{
    {"layers", &LlamaSizes::layers, kMostLayers},
    {"width", &LlamaSizes::width, kMostWidth},
    {"heads", &LlamaSizes::heads, kMostWidth},
    {"kv_heads", &LlamaSizes::kv_heads, kMostWidth},
    {"mlp_width", &LlamaSizes::mlp_width, kMostMlpWidth},
    {"vocab", &LlamaSizes::vocab, kMostClasses},
    {"seq", &LlamaSizes::seq, kMostSeq, kOptional},
    {"rope_theta", &LlamaSizes::rope_theta, int64_t{1} << 40, kOptional},
    {"rope_factor", &LlamaSizes::rope_factor, int64_t{1} << 20, kOptional},
    {"tied", &LlamaSizes::tied, 1, kOptional},
}};

/// Returns the sizes of Llama 3.1 and 3.2, which differ in sizes and in how far they stretch rotary
/// positions.
LlamaSizes llama_3(int64_t layers, int64_t width, int64_t heads, int64_t mlp_width,
                   int64_t rope_factor) {
  return {.layers = layers,
          .width = width,
          .heads = heads,
          .kv_heads = 8,
          .mlp_width = mlp_width,
          .vocab = 128256,
          .rope_factor = rope_factor};
}

LlamaSizes tied(LlamaSizes sizes) {
  sizes.tied = true;
  return sizes;
}

double approximate_llama_numel(const LlamaSizes& s) {
  const auto width = static_cast<double>(s.width);
  const double kv = width / static_cast<double>(s.heads) * static_cast<double>(s.kv_heads);
  const double block =
      2 * width * (width + kv) + 3 * width * static_cast<double>(s.mlp_width) + 2 * width;
  return (s.tied ? 1 : 2) * width * static_cast<double>(s.vocab) + width +
         static_cast<double>(s.layers) * block;
}

Problem llama_problem(const LlamaSizes& sizes) {
  if (auto problem = range_problem(sizes)) return problem;
  if (auto problem = division_problem("heads", sizes.heads, "width", sizes.width)) return problem;
  if (auto problem = division_problem("kv_heads", sizes.kv_heads, "heads", sizes.heads)) {
    return problem;
  }
  if (sizes.head_width() % 2 != 0) {
    return fmt::format(
        "\"heads\" {} of \"width\" {} are {} wide, and rotary positions need an even number; "
        "change one of them",
        sizes.heads, sizes.width, sizes.head_width());
  }
  return numel_problem(sizes.width, approximate_llama_numel(sizes));
}

class LlamaBuilder : SpecBuilder {
 public:
  LlamaBuilder(std::string name, const LlamaSizes& sizes)
      : SpecBuilder(std::move(name), sizes), s_(sizes) {}

  ModelSpec build() {
    spec.start_weights = StartWeights::normal;
    spec.sample = {InputKind::tokens, {s_.seq}, {s_.seq}, s_.vocab};
    // A unit belongs to one group: a tied head shares its matrix, so also its group.
    const std::string head = s_.tied ? "embed" : "head";
    const int embed = add("model.embed_tokens.weight", {s_.vocab, s_.width}, "embed");
    add_embedding(LlamaUnit::embed, s_.seq, embed);
    for (int64_t layer = 0; layer < s_.layers; ++layer) add_block(layer);
    const int norm = add("model.norm.weight", {s_.width}, head);
    const int matrix = s_.tied ? embed : add("lm_head.weight", {s_.vocab, s_.width}, head);
    add_unit("head", LlamaUnit::head, s_.seq, {norm, matrix});
    return std::move(spec);
  }

 private:
  void add_block(int64_t layer) {
    const std::string group = fmt::format("block{}", layer);
    const std::string prefix = fmt::format("model.layers.{}.", layer);
    const int64_t width = s_.width, kv_width = s_.kv_heads * s_.head_width();
    const auto matrix = [&](const char* name, int64_t out, int64_t in) {
      return add(prefix + name + ".weight", {out, in}, group);
    };
    const int q = matrix("self_attn.q_proj", width, width);
    const int k = matrix("self_attn.k_proj", kv_width, width);
    const int v = matrix("self_attn.v_proj", kv_width, width);
    const int o = matrix("self_attn.o_proj", width, width);
    const int gate = matrix("mlp.gate_proj", s_.mlp_width, width);
    const int up = matrix("mlp.up_proj", s_.mlp_width, width);
    const int down = matrix("mlp.down_proj", width, s_.mlp_width);
    const int first_norm = add(prefix + "input_layernorm.weight", {width}, group);
    const int second_norm = add(prefix + "post_attention_layernorm.weight", {width}, group);
    add_unit(fmt::format("attention{}", layer), LlamaUnit::attention, s_.seq,
             {first_norm, q, k, v, o})
        .attention = {.heads = s_.heads, .tokens = s_.seq, .width = width, .is_causal = true};
    add_unit(fmt::format("mlp{}", layer), LlamaUnit::mlp, s_.seq, {second_norm, gate, up, down});
  }

  LlamaSizes s_;
};

}  // namespace

std::span<const SizeKey<LlamaSizes>> keys_of(const LlamaSizes&) { return kLlamaKeys; }

std::vector<std::pair<std::string, LlamaSizes>> presets_of(const LlamaSizes&) {
  return {{"llama-1b", tied(llama_3(16, 2048, 32, 8192, 32))},
          {"llama-8b", llama_3(32, 4096, 32, 14336, 8)},
          {"llama-70b", llama_3(80, 8192, 64, 28672, 8)}};
}

ModelSpec make_spec(std::string name, const LlamaSizes& sizes) {
  if (const auto problem = llama_problem(sizes)) refuse_sizes(name, *problem);
  return LlamaBuilder(std::move(name), sizes).build();
}

}  // namespace shardlens::models
