// The life of one rank, from its process's first line to its exit code.
#pragma once

#include <sys/types.h>

#include <cstddef>

#include "runtime/job.h"
#include "runtime/run_directory.h"
#include "runtime/watched_signals.h"

namespace shardlens::runtime {

/// The exit code of a rank that was asked to stop and has saved, and of a run of such.
inline constexpr int kPreempted = 143;

class Meeting;

/// Where a rank's process stands among the others.
struct Seat {
  int rank = 0;
  int local_rank = 0;           // on this host
  std::byte* region = nullptr;  // the board of all, or of this rank alone (rendezvous.h)
  Meeting* meeting = nullptr;   // of ranks that share no memory
};

/// In the process that is for this rank alone: trains to the end. What ends it badly is on the
/// board of the region, as abort note, before this returns. Returns the exit code.
int live_as_rank(const Job& job, const RunDirectory& directory, const Seat& seat);

/// Who has forked a rank off.
struct Parent {
  pid_t pid;
  const WatchedSignals& signals;  // that are still blocked
};

/// The same in a process that `parent` has forked off and that dies with it. Never returns, and
/// never runs the launcher's destructors.
[[noreturn]] void be_rank(const Job& job, const RunDirectory& directory, int rank,
                          std::byte* region, const Parent& parent);

}  // namespace shardlens::runtime
