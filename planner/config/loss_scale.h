// The factor by which a loss is scaled, as --loss-scale says.
#pragma once

#include "planner/config/config.h"

namespace shardlens::planner {

/// The factor that multiplies the loss before backward, so that small gradients are not lost in
/// fp16: none, a constant, or a factor that has not overflowed lately.
struct LossScale {
  enum class Kind { none, constant, dynamic };
  Kind kind = Kind::none;
  double value = 1;

  bool operator==(const LossScale&) const = default;
};

/// Reads --loss-scale. Throws std::invalid_argument, also for fp16 parameters without a loss scale.
LossScale loss_scale_of(const Config& config);

}  // namespace shardlens::planner
