// Inverts the plan: finds the largest batch, the most layers, the fewest ranks or the smallest GPU
// with which a run still fits, without retries.
#pragma once

#include <string>

#include "planner/planner.h"

namespace shardlens::planner {

/// Solves for `what`: batch, world, layers or gpu. Returns the plan of the value that was found,
/// with Plan::solution; if nothing fits, the plan that came nearest, with an empty value. Throws
/// std::invalid_argument for any other word, and if the model or strategy has no such size.
///
/// The value is found by doubling and halving, on the assumption that memory grows with batch and
/// layers and does not grow with ranks.
Plan solve(const std::string& what, const Config& config, const PlanOptions& options);

}  // namespace shardlens::planner
