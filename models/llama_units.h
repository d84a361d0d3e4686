// The units of a Llama decoder, computed as in Hugging Face's LlamaForCausalLM.
// B batch, T tokens, D width, H heads, K key and value heads, E = D / H head width, V vocabulary.
// models/units.h describes `Ops`.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>

#include "models/input_use.h"
#include "models/spec.h"

namespace shardlens::models {

template <class Ops>
class LlamaUnits {
 public:
  using Tensor = typename Ops::Tensor;
  using Parameters = std::span<const Tensor>;
  using RotaryTable = typename Ops::RotaryTable;

  LlamaUnits(const LlamaSizes& sizes, std::shared_ptr<RotaryTable> table)
      : sizes_(sizes), table_(std::move(table)) {}

  Tensor run(UnitKind kind, const Tensor& input, Parameters p) const {
    switch (kind) {
      case UnitKind::llama_attention:
        return attention(input, p);
      case UnitKind::llama_mlp:
        return mlp(input, p);
      case UnitKind::llama_head:
        return head(input, p);
      default:
        throw std::logic_error("no unit of a Llama");
    }
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
  std::shared_ptr<RotaryTable> table_;
};

}  // namespace shardlens::models
