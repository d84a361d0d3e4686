#include "models/model.h"

#include "base/check.h"
#include "models/aten_ops.h"
#include "models/units.h"
#include "models/weights/weights.h"

namespace shardlens::models {

std::vector<Forward> build_units(const ModelSpec& spec) { return make_units<AtenOps>(spec); }

void draw_parameters(const ModelSpec& spec, uint64_t seed, const ParameterReceiver& take) {
  switch (spec.start_weights) {
    case StartWeights::torchvision:
      return draw_vit(spec, seed, take);
    case StartWeights::normal:
      return draw_normal(spec, seed, take);
    case StartWeights::modules:
      return draw_modules(spec, seed, take);
  }
  unreachable("start weights out of range");
}

}  // namespace shardlens::models
