// Trains a model: all that programs call. runtime/runtime.cpp implements it.
//
// A program with a model of its own calls `train` from its main(): it then takes the flags of
// `shardlens train`, starts and watches the ranks, and shards the model as they say
// (tests/examples/own_model.cpp).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "models/model.h"
#include "models/own_data.h"
#include "planner/config/strategy.h"

namespace shardlens::planner {
struct TrainingData;
}

namespace shardlens::runtime {

/// Holds what a program brings along in place of --model and --data.
struct OwnTraining {
  models::OwnModel model;
  OwnData train{};  // no samples: one random batch, as with --data synthetic
  OwnData test{};   // no samples: no test; else answers are counted as for classes
};

/// Holds what is expected of a rank's memory.
struct Forecast {
  std::string verdict;  // one line: if it suffices, or why not
  bool fits = true;
  // These peaks are over the whole run, as LibTorch counts them.
  int64_t allocated_bytes = 0;
  int64_t reserved_bytes = 0;
};

/// Returns a forecast, or nothing if none can be made. It is called before a run starts, with its
/// configuration as it will be, and what its data are.
using Forecaster = std::function<std::optional<Forecast>(const planner::Config& config,
                                                         const planner::TrainingData& data)>;

/// Runs `shardlens train` with flags as on the command line. Prints progress, and one line if it
/// fails. Returns the exit code: 0 done, 1 failed, 2 wrong use, 3 if the forecast says that it
/// cannot fit and --anyway was not given, 143 if SIGTERM or SIGUSR1 let it save. A run that a
/// signal ended without saving dies of that signal. In a rank that another launcher has started, a
/// failure ends the process, because threads may be stuck in peers that are gone.
int train(const std::vector<std::string>& arguments, const Forecaster& forecaster = {});

/// Does the same with a model of the caller's. The ranks are forked off, so this process must not
/// have started threads before; functions of `own` run in the ranks.
int train(const std::vector<std::string>& arguments, const OwnTraining& own);

}  // namespace shardlens::runtime
