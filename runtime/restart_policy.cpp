#include "runtime/restart_policy.h"

#include <fmt/format.h>

#include <algorithm>

namespace shardlens::runtime {

namespace {

/// The last attempts, all from one checkpoint.
std::span<const FailedAttempt> without_newer_checkpoint(std::span<const FailedAttempt> failures) {
  size_t count = 0;
  for (auto one = failures.rbegin(); one != failures.rend(); ++one, ++count) {
    if (one->from_step != failures.back().from_step) break;
  }
  return failures.last(count);
}

bool came_here_before(std::span<const FailedAttempt> failures) {
  const int64_t here = failures.back().reached_step;
  return std::ranges::any_of(failures.first(failures.size() - 1),
                             [&](const FailedAttempt& one) { return one.reached_step == here; });
}

}  // namespace

bool may_pass(Fault fault) {
  return fault != Fault::wrong_use && fault != Fault::out_of_memory &&
         fault != Fault::interrupted && fault != Fault::overtaken;
}

RestartDecision decide(int64_t max_failures, std::span<const FailedAttempt> failures) {
  const FailedAttempt& last = failures.back();
  if (max_failures == 0 || !may_pass(last.fault)) return {};
  const auto count = static_cast<int64_t>(failures.size());
  if (max_failures > 0 && count > max_failures) {
    return {.why_not = fmt::format("this was failure {} of --max-failures {}: no start follows",
                                   count, max_failures)};
  }
  const auto same_start = without_newer_checkpoint(failures);
  if (came_here_before(same_start)) {
    return {.why_not = fmt::format("no progress: after a restart it came to step {} again, and no "
                                   "further, without a newer checkpoint; no start follows",
                                   last.reached_step)};
  }
  const auto doublings = std::min<size_t>(same_start.size() - 1, 16);
  const auto pause = std::min(kFirstPause * (int64_t{1} << doublings), kLongestPause);
  return {.restarts = true, .pause = pause};
}

}  // namespace shardlens::runtime
