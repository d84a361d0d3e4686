// A plan as text for people.
#pragma once

#include <string>

#include "planner/planner.h"

namespace shardlens::planner {

/// Says on one line, without its newline, whether the run fits.
std::string verdict_line(const Plan& plan);
/// Writes the plan for people, on about one screen.
std::string plan_text(const Plan& plan);

}  // namespace shardlens::planner
