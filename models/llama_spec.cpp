#include <fmt/format.h>

#include <array>

#include "models/families.h"

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

double approximate_llama_numel(const LlamaSizes& s) {
  const auto width = static_cast<double>(s.width);
  const double kv = width / static_cast<double>(s.heads) * static_cast<double>(s.kv_heads);
  const double block =
      2 * width * (width + kv) + 3 * width * static_cast<double>(s.mlp_width) + 2 * width;
  return (s.tied ? 1 : 2) * width * static_cast<double>(s.vocab) + width +
         static_cast<double>(s.layers) * block;
}

std::optional<std::string> llama_problem(const LlamaSizes& sizes) {
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
      : SpecBuilder(std::move(name), Family::llama), s_(sizes) {}

  ModelSpec build() {
    spec.llama = s_;
    spec.sample = {InputKind::tokens, {s_.seq}, {s_.seq}, s_.vocab};
    // A unit belongs to one group: a tied head shares its matrix, so also its group.
    const std::string head = s_.tied ? "embed" : "head";
    const int embed = add("model.embed_tokens.weight", {s_.vocab, s_.width}, "embed");
    add_unit("embed", UnitKind::token_embed, {embed}).backward_reads_parameters = false;
    for (int64_t layer = 0; layer < s_.layers; ++layer) add_block(layer);
    const int norm = add("model.norm.weight", {s_.width}, head);
    const int matrix = s_.tied ? embed : add("lm_head.weight", {s_.vocab, s_.width}, head);
    add_unit("head", UnitKind::llama_head, {norm, matrix});
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
    add_unit(fmt::format("attention{}", layer), UnitKind::llama_attention,
             {first_norm, q, k, v, o});
    add_unit(fmt::format("mlp{}", layer), UnitKind::llama_mlp, {second_norm, gate, up, down});
  }

  LlamaSizes s_;
};

}  // namespace

std::span<const SizeKey<LlamaSizes>> keys_of(const LlamaSizes&) { return kLlamaKeys; }

ModelSpec make_llama(std::string name, const LlamaSizes& sizes) {
  if (const auto problem = llama_problem(sizes)) refuse_sizes(name, *problem);
  return LlamaBuilder(std::move(name), sizes).build();
}

}  // namespace shardlens::models
