// Compares how long a step of a program is expected to take with what its baseline's recording
// says. Both predictions are of the same model, so its error is in both; the host's time is
// measured, and differs each time that a program runs.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "profiler/record/time/predicted_time.h"

namespace shardlens::profiler {

struct TimeChange {
  double percent = 0;  // that a step takes longer; below zero: less long
  /// The same if the host was disturbed in the baseline and not now, so that only what the GPU does
  /// and a large change of the host's time remain.
  double certain_percent = 0;

  bool is_slower_than(double limit_percent) const { return certain_percent > limit_percent; }
};

/// Returns nothing if one of the two is not known.
std::optional<TimeChange> time_change(const std::optional<PredictedTime>& before,
                                      const std::optional<PredictedTime>& after);

/// Returns why a change is not counted that is larger than the limit, or why there is none, each as
/// a doubt about a run.
std::vector<std::string> doubts_of_change(const std::optional<PredictedTime>& before,
                                          const std::optional<PredictedTime>& after,
                                          double limit_percent);

/// Returns what takes longer than in the baseline: "+3.10 ms matrix products, +0.20 ms attention".
std::string longer_parts_text(const PredictedTime& before, const PredictedTime& after);

}  // namespace shardlens::profiler
