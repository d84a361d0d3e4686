// The steps of a run that are recorded, as --profile says.
#pragma once

#include <optional>

#include "base/step_range.h"
#include "planner/config/config.h"

namespace shardlens::planner {

/// The parts of a run that --profile records.
struct Recording {
  bool wanted = false;
  std::optional<StepRange> steps;  // nothing: all of the run
};

/// Reads --profile. Throws std::invalid_argument if it is neither a word nor a range of steps.
Recording recording_of(const Config& config);

}  // namespace shardlens::planner
