// How long a planned step takes, in the terms of a recorded one (planner/time/step_time.h).
//
// A recording has each kernel that a program launches; a plan knows those that have measured times,
// and estimates the others by their bytes and their number (action_times.h).
#pragma once

#include <string>
#include <string_view>

#include "base/gpus.h"
#include "models/spec.h"
#include "planner/config/config.h"
#include "planner/cost/cost_model.h"
#include "planner/schedule/schedule.h"
#include "planner/time/step_time.h"

namespace shardlens::planner {

/// Returns the time of a step whose cost on `gpu` is known.
StepTime planned_time(const StepCost& cost, const models::ModelSpec& spec, const Config& config,
                      const Schedule& schedule, const Gpu& gpu);

/// Says what planned times of steps rest on: "cold"; on a CPU, "assumed rates".
constexpr std::string_view planned_basis(bool is_on_gpu) {
  return is_on_gpu ? "cold" : "assumed rates";
}

/// The same as a line of text.
std::string planned_basis_text(bool is_on_gpu);

}  // namespace shardlens::planner
