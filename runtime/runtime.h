// Trains a model: the whole interface for programs. runtime/runtime.cpp implements it.
//
// A program with its own model calls `train` from main(): the program then takes the flags of
// `shardlens train`, starts and watches the ranks, and shards the model as the flags say
// (tests/examples/own_model.cpp).
#pragma once

#include <string>
#include <vector>

#include "runtime/train/forecast.h"
#include "runtime/train/own_training.h"

namespace shardlens::runtime {

/// Runs `shardlens train` with flags as on the command line. Prints progress, and one line if it
/// fails. Returns the exit code: 0 done, 1 failed, 2 wrong use, 3 if the forecast says that the run
/// cannot fit and --anyway was not given, 143 if a signal made it save and end. A run
/// that a signal ended without saving dies of that signal. In a rank that another launcher has
/// started, a failure ends the process, because threads may be stuck waiting for lost peers.
int train(const std::vector<std::string>& arguments, const Forecaster& forecaster = {});

/// Trains the caller's own model instead. The ranks are forked off, so this process must not have
/// started threads before; functions of `own` run in the ranks.
int train(const std::vector<std::string>& arguments, const OwnTraining& own);

}  // namespace shardlens::runtime
