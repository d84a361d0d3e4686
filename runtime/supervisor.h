// A run over all its attempts: each starts the ranks anew from the newest whole checkpoint, until
// the run is done, asked to end, or no start would help (restart_policy.h). What happens is told in
// RUN/events.jsonl, what came of it in RUN/result.json.
//
// [Note: one attempt at a time]
// No attempt begins before every process of the one before has ended and was waited for; ranks die
// with their launcher (PR_SET_PDEATHSIG), and all of them hold the lock on the run's folder. Where
// none of this reaches (a folder that another host writes, too), the fence does (fence.h).
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/events.h"
#include "runtime/launcher.h"
#include "runtime/restart_policy.h"
#include "runtime/resume.h"

namespace shardlens::runtime {

class Supervisor {
 public:
  /// Both must outlive it.
  Supervisor(Job& job, const RunDirectory& directory);

  /// Begins the first attempt: an unfinished run goes on from its newest checkpoint. Returns lines
  /// for the user. Throws as resume does; where failures are forgiven, one of the disk's is left to
  /// run(), which waits and tries again.
  std::vector<std::string> begin();

  /// Blocks until the run has ended; tells of restarts on the standard streams. result.json is
  /// there afterwards, well or badly.
  Outcome run();

 private:
  std::vector<std::string> begin_attempt(bool goes_on, Verified verified);
  Outcome attempt(const WatchedSignals& signals) const;
  Outcome restart(const Outcome& last, std::chrono::milliseconds pause,
                  const WatchedSignals& signals);
  Outcome look_for_another(const Outcome& last, const WatchedSignals& signals);
  Outcome start_again(const std::string& why, const Outcome& last, Verified verified,
                      const WatchedSignals& signals);
  /// 0 where none came.
  static int wait_for_signal(const WatchedSignals& signals, std::chrono::milliseconds pause);
  Outcome ended_by(int signal) const;
  void tell(std::string kind, std::string text, int64_t step);

  Job& job_;
  const RunDirectory& directory_;
  EventLog events_;
  int64_t from_step_ = 0;  // of the present attempt
  std::vector<FailedAttempt> failures_;
  std::optional<Outcome> failed_begin_;  // of the first attempt
};

}  // namespace shardlens::runtime
