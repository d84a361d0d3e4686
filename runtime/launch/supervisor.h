// Supervises a run over all its attempts: each starts the ranks again from the newest whole
// checkpoint, until the run is done, asked to end, or no restart would help (restart_policy.h).
// RUN/events.jsonl lists what happened, RUN/result.json has the result.
//
// [Note: one attempt at a time]
// No attempt begins before every process of the previous one has ended and was waited for; ranks
// die with their launcher (PR_SET_PDEATHSIG), and all of them hold the lock on the run's folder. If
// none of this reaches a process (in a folder that another host also writes), the fence does
// (fence.h).
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/launch/events.h"
#include "runtime/launch/launcher.h"
#include "runtime/launch/restart_policy.h"
#include "runtime/train/resume.h"

namespace shardlens::runtime {

class Supervisor {
 public:
  /// Both must outlive the supervisor.
  Supervisor(Job& job, const RunDirectory& directory);

  /// Begins the first attempt: an unfinished run resumes from its newest checkpoint. Returns lines
  /// for the user. Throws as resume does. If failures are allowed, an error of the disk is left to
  /// run(), which waits and tries again.
  std::vector<std::string> begin();

  /// Blocks until the run has ended, and reports restarts on the standard streams. Afterwards
  /// result.json exists, whether the run succeeded or failed.
  Outcome run();

 private:
  std::vector<std::string> begin_attempt(bool goes_on, VerificationTime verified);
  Outcome attempt(const WatchedSignals& signals) const;
  Outcome restart(const Outcome& last, std::chrono::milliseconds pause,
                  const WatchedSignals& signals);
  Outcome look_for_another(const Outcome& last, const WatchedSignals& signals);
  Outcome start_again(const std::string& why, const Outcome& last, VerificationTime verified,
                      const WatchedSignals& signals);
  /// Returns the signal, or 0 if none came.
  static int wait_for_signal(const WatchedSignals& signals, std::chrono::milliseconds pause);
  Outcome ended_by(int signal) const;
  void log_event(std::string kind, std::string text, int64_t step);

  Job& job_;
  const RunDirectory& directory_;
  EventLog events_;
  int64_t from_step_ = 0;  // of the present attempt
  std::vector<FailedAttempt> failures_;
  std::optional<Outcome> failed_begin_;  // of the first attempt
};

}  // namespace shardlens::runtime
