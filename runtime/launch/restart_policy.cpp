#include "runtime/launch/restart_policy.h"

#include <fmt/format.h>

#include <algorithm>

namespace shardlens::runtime {

namespace {

/// Returns the latest attempts, as far back as they resumed from the checkpoint of the last one.
std::span<const FailedAttempt> without_newer_checkpoint(std::span<const FailedAttempt> failures) {
  size_t count = 0;
  for (auto one = failures.rbegin(); one != failures.rend(); ++one, ++count) {
    if (one->from_step != failures.back().from_step) break;
  }
  return failures.last(count);
}

bool comes_and_goes(const FailedAttempt& one) {
  const bool is_outside =
      one.fault == Fault::disk_full || one.fault == Fault::connection || one.fault == Fault::lost;
  return is_outside || (one.fault == Fault::hung && !one.has_begun);
}

bool has_one_cause(const FailedAttempt& a, const FailedAttempt& b) {
  const bool is_one_place =
      a.has_begun == b.has_begun && (!a.has_begun || a.reached_step == b.reached_step);
  return is_one_place && a.fault == b.fault && a.rank == b.rank;
}

/// Returns how many of the latest failures in a row, all from one checkpoint, have the cause of the
/// last one. Returns 0 if that cause lies outside the run.
int64_t row_of_one_cause(std::span<const FailedAttempt> failures) {
  if (comes_and_goes(failures.back())) return 0;
  int64_t count = 0;
  for (auto one = failures.rbegin(); one != failures.rend(); ++one) {
    if (comes_and_goes(*one)) continue;
    if (!has_one_cause(*one, failures.back())) break;
    ++count;
  }
  return count;
}

std::string no_progress_text(int64_t count, const FailedAttempt& last) {
  const std::string who = last.rank < 0 ? "" : fmt::format(" (rank {})", last.rank);
  const std::string where =
      last.has_begun ? fmt::format("at step {}", last.reached_step) : "before its first step";
  const std::string from =
      last.from_step == 0 ? "the start" : fmt::format("the checkpoint of step {}", last.from_step);
  return fmt::format(
      "no progress: {} {}{} each time, {} times in a row from {} without a newer checkpoint, which "
      "is --give-up-after {}; not restarted: fix the cause, then run the same command to resume",
      to_string(last.fault), where, who, count, from, count);
}

}  // namespace

bool may_pass(Fault fault) {
  return fault != Fault::wrong_use && fault != Fault::out_of_memory &&
         fault != Fault::interrupted && fault != Fault::overtaken;
}

RestartDecision decide(const RestartLimits& limits, std::span<const FailedAttempt> failures) {
  const FailedAttempt& last = failures.back();
  if (limits.max_failures == 0 || !may_pass(last.fault)) return {};
  const auto count = static_cast<int64_t>(failures.size());
  if (limits.max_failures > 0 && count > limits.max_failures) {
    return {.why_not = fmt::format("this was failure {} of --max-failures {}: not restarted", count,
                                   limits.max_failures)};
  }
  const auto same_start = without_newer_checkpoint(failures);
  const int64_t row = row_of_one_cause(same_start);
  if (row >= limits.give_up_after) return {.why_not = no_progress_text(row, last)};
  const auto doublings = std::min<size_t>(same_start.size() - 1, 16);
  const auto pause = std::min(kFirstPause * (int64_t{1} << doublings), kLongestPause);
  return {.restarts = true, .pause = pause};
}

}  // namespace shardlens::runtime
