#include "models/model.h"

#include <stdexcept>

#include "models/aten_ops.h"
#include "models/units.h"
#include "models/weights/weights.h"

namespace shardlens::models {

std::vector<Forward> build_units(const ModelSpec& spec) { return make_units<AtenOps>(spec); }

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

}  // namespace shardlens::models
