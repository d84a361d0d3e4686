// Says in words and in JSON how long a step takes (planner/time/step_time.h).
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/gpus.h"
#include "planner/time/step_time.h"
#include "planner/time/world_time.h"

namespace shardlens::planner {

/// Returns lines with the time of a step, which takes some, what it goes to, and what is in doubt.
std::string step_time_text(const StepTime& time, const Gpu& gpu);

/// The same for several ranks that were simulated together, with the time of the slowest first.
/// `numbers` are those of the ranks.
std::string world_time_text(const WorldTime& world, const std::vector<int32_t>& numbers,
                            const Gpu& gpu);
nlohmann::ordered_json world_time_json(const WorldTime& world, const std::vector<int32_t>& numbers,
                                       const Gpu& gpu);

/// Returns what a step goes to, in words, with its seconds, the largest first.
std::vector<std::pair<std::string_view, double>> step_parts(const StepTime& time);

/// Returns "cold" or "calibrated".
std::string basis_of(const StepTime& time);

/// Returns "63.0 ms +-23 %".
std::string time_with_band(const StepTime& time);

nlohmann::ordered_json step_time_json(const StepTime& time, const Gpu& gpu);

/// Returns when each event happens that a program records: SimulatedEvents, in words and in JSON.
std::string event_times_text(const profiler::WorkTrace& trace, const Gpu& gpu,
                             const StepTimeOptions& options);
nlohmann::ordered_json event_times_json(const profiler::WorkTrace& trace, const Gpu& gpu,
                                        const StepTimeOptions& options);

}  // namespace shardlens::planner
