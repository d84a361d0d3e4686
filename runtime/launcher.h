// One attempt: starts the ranks of a job as processes, watches them, and ends all of them when one
// ends badly, hangs or is late. What follows from an attempt is the supervisor's to decide.
#pragma once

#include <cstdint>
#include <string>

#include "runtime/comm/fault.h"
#include "runtime/job.h"
#include "runtime/run_directory.h"
#include "runtime/watched_signals.h"

namespace shardlens::runtime {

/// What an attempt came to.
struct Outcome {
  enum class End { finished, preempted, failed };

  End end = End::finished;
  int64_t step = 0;  // that was done
  int signal = 0;    // that asked to end: the user's wish, or a scheduler's

  // Of one that has failed:
  Fault fault{};
  int rank = -1;             // that is to blame; -1: nobody knows
  bool has_begun = false;    // that rank its first step, or rank 0 where nobody is to blame
  std::string reason{};      // names rank, step and operation
  bool may_restart = false;  // every process has ended

  bool ok() const { return end == End::finished; }
};

/// Blocks until every rank has ended. Where it fails, what each rank did last is in the run's
/// logs. `signals` live in this process since before the first attempt.
Outcome launch(const Job& job, const RunDirectory& directory, const WatchedSignals& signals);

}  // namespace shardlens::runtime
