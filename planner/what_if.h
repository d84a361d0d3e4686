// Finds what one change of a flag would do to a plan, by simulating each changed configuration.
#pragma once

#include <vector>

#include "planner/planner.h"
#include "planner/prepared_run.h"

namespace shardlens::planner {

/// Returns the changes that apply and take less memory, the largest saving first.
std::vector<WhatIf> what_ifs_of(const PreparedRun& run, const Plan& plan,
                                const PlanOptions& options);

}  // namespace shardlens::planner
