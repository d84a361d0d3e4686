// Decides whether a run is restarted after an attempt has failed, and after which pause. Pure
// functions of the results of the run's attempts.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <string>

#include "base/fault.h"

namespace shardlens::runtime {

/// Holds the result of an attempt that has failed.
struct FailedAttempt {
  int64_t from_step = 0;     // of the checkpoint that it resumed from; 0: none
  int64_t reached_step = 0;  // steps that were done when it failed
  Fault fault = Fault::failed;
  int rank = -1;          // the rank that is to blame; -1: unknown
  bool has_begun = true;  // began a step; else reached_step is an earlier attempt's
};

/// Holds the values of --max-failures and --give-up-after.
struct RestartLimits {
  int64_t max_failures = 0;  // -1: any number
  int64_t give_up_after = 1;
};

struct RestartDecision {
  bool restarts = false;
  std::chrono::milliseconds pause{};  // before the start
  std::string why_not{};              // one line; empty: the fault itself says why
};

/// The pause after the first failure; it doubles with each one that brought no newer checkpoint.
inline constexpr std::chrono::milliseconds kFirstPause{250};
inline constexpr std::chrono::milliseconds kLongestPause{30'000};

/// True if a restart may clear the fault. False for faults that the user must fix or asked for, for
/// memory that will be just as short, and if another launcher has taken the run over.
bool may_pass(Fault fault);

/// Decides what follows the last of `failures`. They belong to one start by the user, the oldest
/// first.
///
/// [Note: one cause]
/// Failures have one cause, as far as can be told, if the same rank failed in the same way at the
/// same step, and no newer checkpoint was made in between. When --give-up-after of them come in a
/// row, the run ends, because the next attempt would fail in the same way. A full disk, peers out
/// of reach and ranks that do not meet depend on things outside the run; they neither count as a
/// cause nor end a row, and only --max-failures bounds how often they are waited for.
RestartDecision decide(const RestartLimits& limits, std::span<const FailedAttempt> failures);

}  // namespace shardlens::runtime
