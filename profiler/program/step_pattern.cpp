#include "profiler/program/step_pattern.h"

#include <algorithm>
#include <cstddef>
#include <vector>

namespace shardlens::profiler {

namespace {

constexpr double kLeastRatio = 1.05;  // of the lowest high step to the highest low one

/// Returns the distance of the high steps if it is the same everywhere; else 0.
size_t distance_of(const std::vector<size_t>& high, size_t steps) {
  if (high.size() < 2) return 0;
  const size_t distance = high[1] - high[0];
  for (size_t i = 2; i < high.size(); ++i) {
    if (high[i] - high[i - 1] != distance) return 0;
  }
  const bool is_whole = high.front() < distance && steps - high.back() <= distance;
  return is_whole && distance >= 2 ? distance : 0;
}

}  // namespace

std::optional<StepPattern> find_step_pattern(std::span<const StepHeight> steps) {
  if (steps.empty()) return std::nullopt;
  const auto [lowest, highest] = std::ranges::minmax(steps, {}, &StepHeight::bytes);
  const int64_t middle = lowest.bytes + (highest.bytes - lowest.bytes) / 2;
  std::vector<size_t> high;
  int64_t low_bytes = 0, least_high_bytes = highest.bytes;
  for (size_t i = 0; i < steps.size(); ++i) {
    if (steps[i].bytes > middle) {
      high.push_back(i);
      least_high_bytes = std::min(least_high_bytes, steps[i].bytes);
    } else {
      low_bytes = std::max(low_bytes, steps[i].bytes);
    }
  }
  const size_t distance = distance_of(high, steps.size());
  const bool is_apart =
      static_cast<double>(least_high_bytes) >= kLeastRatio * static_cast<double>(low_bytes);
  if (distance == 0 || !is_apart) return std::nullopt;
  return StepPattern{.every = static_cast<int64_t>(distance),
                     .first_step = steps[high.front()].step,
                     .high_bytes = highest.bytes,
                     .low_bytes = low_bytes};
}

}  // namespace shardlens::profiler
