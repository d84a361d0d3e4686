// Trains a model: all that programs call. runtime/runtime.cpp implements it.
//
// A program with a model of its own calls `train` from its main(): it then takes the flags of
// `shardlens train`, starts and watches the ranks, and shards the model as they say
// (tests/examples/own_model.cpp).
#pragma once

#include <string>
#include <vector>

#include "runtime/train/forecast.h"
#include "runtime/train/own_training.h"

namespace shardlens::runtime {

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
