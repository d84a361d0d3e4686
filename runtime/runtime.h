// Trains. Everything else in this folder is private to it.
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
#include "planner/strategy.h"
#include "runtime/own_data.h"

namespace shardlens::planner {
struct TrainingData;
}

namespace shardlens::runtime {

/// What a program brings along in place of --model and --data.
struct OwnTraining {
  models::OwnModel model;
  OwnData train{};  // no samples: one random batch, as with --data synthetic
  OwnData test{};   // no samples: nothing is tested; else answers are counted as classes' are
};

/// What is expected of a rank's memory.
struct Forecast {
  std::string verdict;  // one line: whether it suffices, and why not
  bool fits = true;
  // Over the whole run, as LibTorch counts them.
  int64_t allocated_bytes = 0;
  int64_t reserved_bytes = 0;
};

/// Asked before a run starts, with its configuration as it will be, and what its data are; nothing:
/// nobody knows.
using Forecaster = std::function<std::optional<Forecast>(const planner::Config& config,
                                                         const planner::TrainingData& data)>;

/// `shardlens train`: flags as on the command line. Prints progress, one line where it fails.
/// Returns the exit code: 0 done, 1 failed, 2 wrong use, 3 where the forecast says that it cannot
/// fit and --anyway was not given, 143 where SIGTERM or SIGUSR1 let it save. Dies of the signal
/// that ended the run without. As a rank that another launcher has started, a failure ends the
/// process: threads may be stuck in peers that are gone.
int train(const std::vector<std::string>& arguments, const Forecaster& forecaster = {});

/// The same with a model of the caller's. The ranks are forked off, so until now this process may
/// have started no threads; functions of `own` run in the ranks.
int train(const std::vector<std::string>& arguments, const OwnTraining& own);

}  // namespace shardlens::runtime
