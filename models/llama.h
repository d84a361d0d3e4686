// The family `llama`: decoders, computed as in Hugging Face's LlamaForCausalLM.
// B batch, T tokens, D width, H heads, K key and value heads, E = D / H head width, V vocabulary.
// models/units.h describes `Ops`.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.h"
#include "models/spec.h"
#include "models/spec_builder.h"

namespace shardlens::models {

/// Holds the sizes of a decoder, as in Hugging Face's LlamaForCausalLM: RMSNorm, rotary positions,
/// grouped-query attention, SwiGLU.
struct LlamaSizes {
  static constexpr std::string_view kFamily = "llama";  // in a model file

  int64_t layers = 0;
  int64_t width = 0;
  int64_t heads = 0;     // divides width
  int64_t kv_heads = 0;  // divides heads
  int64_t mlp_width = 0;
  int64_t vocab = 0;
  int64_t seq = 2048;           // tokens a sample
  int64_t rope_theta = 500000;  // base of the rotary positions' wave lengths
  int64_t rope_factor = 1;      // Llama 3.1's stretch of the long ones; 1: none
  bool tied = false;            // the head's matrix is the embedding's

  int64_t head_width() const { return width / heads; }

  bool operator==(const LlamaSizes&) const = default;
};

enum class LlamaUnit { embed, attention, mlp, head };

/// Returns the sizes by their names in a model file.
std::span<const SizeKey<LlamaSizes>> keys_of(const LlamaSizes& family);
/// Returns the models that are known by name.
std::vector<std::pair<std::string, LlamaSizes>> presets_of(const LlamaSizes& family);
/// Makes a model of any sizes. Throws std::invalid_argument if they do not divide, or overflow.
ModelSpec make_spec(std::string name, const LlamaSizes& sizes);

template <class Ops>
class LlamaUnits {
 public:
  using Tensor = typename Ops::Tensor;
  using Parameters = std::span<const Tensor>;
  using RotaryTable = typename Ops::RotaryTable;

  explicit LlamaUnits(const LlamaSizes& sizes) : sizes_(sizes) {}

  Tensor run(int kind, const Tensor& input, Parameters p) const {
    switch (static_cast<LlamaUnit>(kind)) {
      case LlamaUnit::embed:
        return Ops::embedding(p[0], input);
      case LlamaUnit::attention:
        return attention(input, p);
      case LlamaUnit::mlp:
        return mlp(input, p);
      case LlamaUnit::head:
        return head(input, p);
    }
    unreachable("not a unit of a Llama");
  }

 private:
  static constexpr double kRmsNormEps = 1e-5;

  /// True if a kernel takes fewer key heads as they are. If none does, PyTorch would fall back to
  /// one that writes all T x T scores to memory. On a GPU flash attention takes them in reduced
  /// precision; in fp32 memory-efficient attention takes them in some versions, if rows are
  /// multiples of 16 bytes.
  static bool takes_groups(const Tensor& q) {
    if (!q.is_cuda() || q.scalar_type() != Ops::kFloat) return true;
    return Ops::torch_rules(q).efficient_takes_groups && q.size(3) % 4 == 0;
  }

  /// Attends: q [B, H, T, E], k and v [B, K, T, E] -> [B, H, T, E].
  static Tensor attend(const Tensor& q, Tensor k, Tensor v) {
    const int64_t repeats = q.size(1) / k.size(1);
    if (repeats > 1 && !takes_groups(q)) {
      k = Ops::repeat_interleave(k, repeats, 1);
      v = Ops::repeat_interleave(v, repeats, 1);
    }
    return Ops::attention(q, k, v, /*causal=*/true);
  }

  /// Runs an attention unit: [B, T, D] -> [B, T, D].
  Tensor attention(const Tensor& input, Parameters p) const {
    const int64_t batch = input.size(0), tokens = input.size(1), width = sizes_.head_width();
    Ops::fill(*table_, sizes_, input);
    const Tensor normed = Ops::rms_norm(input, p[0], kRmsNormEps);
    const auto heads_of = [&](const Tensor& weight) {
      return Ops::project(normed, weight).view({batch, tokens, -1, width});
    };
    const Tensor q = Ops::rotate(heads_of(p[1]), *table_);
    const Tensor k = Ops::rotate(heads_of(p[2]), *table_);
    const Tensor v = heads_of(p[3]);
    const Tensor mixed = attend(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2))
                             .transpose(1, 2)
                             .reshape({batch, tokens, sizes_.width});
    return input + Ops::project(mixed, p[4]);
  }

  /// Runs an MLP unit: [B, T, D] -> [B, T, D].
  Tensor mlp(const Tensor& input, Parameters p) const {
    const Tensor normed = Ops::rms_norm(input, p[0], kRmsNormEps);
    return input + Ops::project(Ops::gate(Ops::project(normed, p[1]), Ops::project(normed, p[2])),
                                p[3], InputUse::spent);
  }

  /// Runs the head: [B, T, D] -> [B * T, V].
  Tensor head(const Tensor& input, Parameters p) const {
    return Ops::project(Ops::rms_norm(input, p[0], kRmsNormEps).view({-1, input.size(-1)}), p[1],
                        InputUse::spent);
  }

  LlamaSizes sizes_;
  // All copies share it; the first unit that needs it fills it.
  std::shared_ptr<RotaryTable> table_ = std::make_shared<RotaryTable>();
};

template <class Ops>
LlamaUnits<Ops> units_of(const LlamaSizes& sizes) {
  return LlamaUnits<Ops>(sizes);
}

}  // namespace shardlens::models
