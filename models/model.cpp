#include "models/model.h"

#include <ATen/ATen.h>

#include <stdexcept>

#include "models/units.h"
#include "models/weights.h"

namespace shardlens::models {

namespace {

Forward build_unit(const ModelSpec& spec, UnitKind kind,
                   const std::shared_ptr<RotaryTable>& rotary) {
  if (kind == UnitKind::token_embed) return embed_tokens;
  switch (spec.family) {
    case Family::vit:
      return vit_unit(spec.vit, kind);
    case Family::llama:
      return llama_unit(spec.llama, kind, rotary);
    case Family::mlp:
      return mlp_unit(kind);
    case Family::transformer:
      return transformer_unit(kind);
    case Family::own:
      break;
  }
  throw std::logic_error("family out of range");
}

}  // namespace

std::vector<Forward> build_units(const ModelSpec& spec) {
  const auto rotary = std::make_shared<RotaryTable>();
  std::vector<Forward> units;
  for (const UnitSpec& unit : spec.units) units.push_back(build_unit(spec, unit.kind, rotary));
  return units;
}

void draw_parameters(const ModelSpec& spec, uint64_t seed, const TakeParameter& take) {
  switch (spec.family) {
    case Family::vit:
      return draw_vit(spec, seed, take);
    case Family::llama:
      return draw_llama(spec, seed, take);
    case Family::mlp:
    case Family::transformer:
    case Family::own:
      return draw_defaults(spec, seed, take);
  }
  throw std::logic_error("family out of range");
}

at::Tensor layer_norm(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias,
                      double eps) {
  return at::layer_norm(input.to(weight.scalar_type()), {input.size(-1)}, weight, bias, eps)
      .to(input.scalar_type());
}

at::Tensor embed_tokens(const at::Tensor& ids, Parameters p) { return at::embedding(p[0], ids); }

}  // namespace shardlens::models
