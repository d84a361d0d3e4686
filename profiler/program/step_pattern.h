// Finds the rhythm of a program's steps: "every 16th step: 4.48 GiB, else at most 2.10 GiB".
#pragma once

#include <cstdint>
#include <optional>
#include <span>

namespace shardlens::profiler {

/// The height of a step.
struct StepHeight {
  int64_t step = 0;
  int64_t bytes = 0;
};

struct StepPattern {
  int64_t every = 0;       // steps from one high step to the next
  int64_t first_step = 0;  // the first high one
  int64_t high_bytes = 0;  // of the highest
  int64_t low_bytes = 0;   // of the highest of the others
};

/// Returns nothing unless the steps are of two heights, a twentieth apart at least, and the high
/// ones come at least twice, in the same distance from the first to the last step.
std::optional<StepPattern> find_step_pattern(std::span<const StepHeight> steps);

}  // namespace shardlens::profiler
