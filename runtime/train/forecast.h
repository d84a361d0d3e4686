// The memory that a rank is expected to take. The planner makes the forecast, and a run compares
// its own memory with the forecast.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "planner/config/config.h"

namespace shardlens::planner {
struct TrainingData;
}

namespace shardlens::runtime {

struct Forecast {
  std::string verdict;  // one line: whether the run fits, or why not
  bool fits = true;
  // These peaks are over the whole run, as LibTorch counts them.
  int64_t allocated_bytes = 0;
  int64_t reserved_bytes = 0;
};

/// Returns a forecast, or nothing if none can be made. It is called before a run starts, with the
/// run's final configuration and its data.
using Forecaster = std::function<std::optional<Forecast>(const planner::Config& config,
                                                         const planner::TrainingData& data)>;

}  // namespace shardlens::runtime
