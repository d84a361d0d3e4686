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

/// Who has forked a rank off.
struct Parent {
  pid_t pid;
  const WatchedSignals& signals;  // that are still blocked
};

/// In a process that `parent` has forked off and that dies with it. What ends the rank badly is on
/// the board of `region` (rendezvous.h), as abort note, before the process ends with a code other
/// than 0. Never returns, and never runs the launcher's destructors.
[[noreturn]] void be_rank(const Job& job, const RunDirectory& directory, int rank,
                          std::byte* region, const Parent& parent);

}  // namespace shardlens::runtime
