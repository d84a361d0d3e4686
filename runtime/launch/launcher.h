// Runs one attempt: starts the ranks of a job as processes, watches them, and ends all of them when
// one fails, hangs or is late. The supervisor decides what happens after an attempt.
#pragma once

#include <cstdint>
#include <string>

#include "base/fault.h"
#include "runtime/checkpoint/run_directory.h"
#include "runtime/launch/watched_signals.h"
#include "runtime/train/job.h"

namespace shardlens::runtime {

/// Holds the result of an attempt.
struct Outcome {
  enum class End { finished, preempted, failed };

  End end = End::finished;
  int64_t step = 0;  // steps done
  int signal = 0;    // that asked the run to end, from the user or a scheduler; 0: none

  // Set if the attempt has failed.
  Fault fault{};
  int rank = -1;             // the rank that is to blame; -1: unknown
  bool has_begun = false;    // that rank, or rank 0 if none is to blame, has begun a step
  std::string reason{};      // names rank, step and operation
  Problem memory_kills{};    // says that the kernel ended processes for lack of host memory
  bool may_restart = false;  // true if every process has ended

  bool ok() const { return end == End::finished; }
};

/// Runs the attempt, and blocks until every rank has ended. If it fails, the run's logs list each
/// rank's last actions. `signals` must exist since before the first attempt.
Outcome launch(const Job& job, const RunDirectory& directory, const WatchedSignals& signals);

}  // namespace shardlens::runtime
