// Runs training in a process that is one rank, started by another launcher: torchrun, srun or
// mpirun. It forks no ranks; they meet in a store (rendezvous_store.h). Rank 0 opens the run and
// decides where it resumes, and the others check that they see the same folder.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "runtime/checkpoint/run_directory.h"
#include "runtime/comm/membership.h"
#include "runtime/train/forecast.h"
#include "runtime/train/job.h"
#include "runtime/train/own_training.h"

namespace shardlens::runtime {

struct LaunchedTask {
  planner::Config config;  // as the user gave it, with a device
  Membership place;        // not alone
  const std::optional<OwnTraining>& own;
  const Forecaster& forecaster;
  /// Tells the user about the run that begins, on rank 0.
  std::function<void(const Job&, const RunDirectory&, const std::vector<std::string>& resumed)>
      introduce;
};

/// Returns the configuration that the ranks will run: the user's, with one worker per rank and a
/// communicator that reaches all ranks. Throws std::invalid_argument if that contradicts the flags.
planner::Config config_under_launcher(const planner::Config& config, const Membership& place);

/// Returns what torchrun reads about a failed rank, to report which rank failed first.
std::string error_file_json(const std::string& reason, int64_t unix_s);

/// Trains to the end, and returns the exit code. If training fails, this ends the process instead.
int train_under_launcher(const LaunchedTask& task);

}  // namespace shardlens::runtime
