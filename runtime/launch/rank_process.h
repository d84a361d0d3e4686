// Runs the life of one rank, from its process's first line to its exit code.
#pragma once

#include <sys/types.h>

#include <cstddef>

#include "runtime/checkpoint/run_directory.h"
#include "runtime/launch/watched_signals.h"
#include "runtime/train/job.h"

namespace shardlens::runtime {

/// The exit codes of a rank and of a run, besides 0. Preempted means that it was asked to stop and
/// has saved.
inline constexpr int kFailed = 1;
inline constexpr int kWrongUse = 2;
inline constexpr int kDoesNotFit = 3;
inline constexpr int kPreempted = 143;

class RendezvousStore;

/// Tells a rank's process its place among the others.
struct Seat {
  int rank = 0;
  int local_rank = 0;                // on this host
  std::byte* region = nullptr;       // the board of all ranks, or only of this one (rendezvous.h)
  RendezvousStore* store = nullptr;  // for ranks that share no memory; else null
};

/// Trains to the end, in a process that is only this rank, and returns the exit code. If it fails,
/// the reason is on the region's board, as its abort note, before this returns.
int live_as_rank(const Job& job, const RunDirectory& directory, const Seat& seat);

/// Lets this process be killed when its parent ends, and ends it if that has happened.
void end_with(pid_t parent);

/// Names the process that forked a rank.
struct Parent {
  pid_t pid;
  const WatchedSignals& signals;  // the signals that are still blocked
};

/// Trains in a process that `parent` has forked and that dies with it. Never returns, and never
/// runs the launcher's destructors.
[[noreturn]] void be_rank(const Job& job, const RunDirectory& directory, int rank,
                          std::byte* region, const Parent& parent);

}  // namespace shardlens::runtime
