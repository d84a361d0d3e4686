// When a run whose attempt has failed is started again, and after which pause. Pure functions of
// what the attempts came to.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <string>

#include "runtime/comm/fault.h"

namespace shardlens::runtime {

/// An attempt that has failed.
struct FailedAttempt {
  int64_t from_step = 0;     // of the checkpoint that it went on from; 0: none
  int64_t reached_step = 0;  // where it failed: steps that were done
  Fault fault = Fault::failed;
};

struct RestartDecision {
  bool restarts = false;
  std::chrono::milliseconds pause{};  // before the start
  std::string why_not{};              // one line; empty: nothing beside the fault itself
};

/// The pause after the first failure; it doubles with each one that brought no newer checkpoint.
inline constexpr std::chrono::milliseconds kFirstPause{250};
inline constexpr std::chrono::milliseconds kLongestPause{30'000};

/// Whether a fault may be gone at another start: not what the user must mend or has wished for,
/// not memory that will be as little again, and not where another launcher has taken the run over.
bool may_pass(Fault fault);

/// After the last of `failures`, which are of one start by the user, the oldest first.
/// `max_failures`: --max-failures.
RestartDecision decide(int64_t max_failures, std::span<const FailedAttempt> failures);

}  // namespace shardlens::runtime
