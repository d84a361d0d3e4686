#include "planner/config/optimizer_options.h"

namespace shardlens::planner {

OptimizerOptions optimizer_options(const Config& config) {
  return {.kind = config.optimizer,
          .lr = config.lr,
          .weight_decay = config.weight_decay,
          .momentum = config.momentum};
}

std::vector<const char*> moments_of(const OptimizerOptions& options) {
  if (options.kind != OptimizerKind::sgd) return {"exp_avg", "exp_avg_sq"};
  if (options.momentum != 0) return {"momentum_buffer"};
  return {};
}

}  // namespace shardlens::planner
