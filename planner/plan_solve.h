// The plan turned around: the largest batch, the most layers, the fewest ranks or the smallest GPU
// with which a run still fits, without retries.
#pragma once

#include <string>

#include "planner/planner.h"

namespace shardlens::planner {

/// `what`: batch, world, layers or gpu. The plan of what was found, with Plan::solution; where
/// nothing fits, the plan of what came nearest, with no value. Throws std::invalid_argument for
/// anything else, and where the model or strategy has no such size.
///
/// Found by doubling and halving: memory is taken to grow with batch and layers, and not to grow
/// with ranks.
Plan solve(const std::string& what, const Config& config, const PlanOptions& options);

}  // namespace shardlens::planner
