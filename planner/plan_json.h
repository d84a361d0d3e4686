// A plan as JSON: the output of `shardlens plan --json`.
#pragma once

#include <string>

#include "planner/planner.h"

namespace shardlens::planner {

/// Writes the plan as one JSON object, {"schema":"shardlens.plan/1", ...}, with a newline at its
/// end.
std::string plan_json(const Plan& plan);

}  // namespace shardlens::planner
