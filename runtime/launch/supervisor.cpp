#include "runtime/launch/supervisor.h"

#include <fmt/format.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <exception>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "base/shown.h"
#include "runtime/launch/attempt.h"
#include "runtime/train/progress.h"

namespace shardlens::runtime {

namespace {

using Clock = std::chrono::steady_clock;

/// Returns the limit that --max-failures sets, as text.
std::string limit_text(int64_t max_failures) {
  return max_failures < 0 ? std::string() : fmt::format(" of {}", max_failures);
}

Fault fault_in(const std::exception& error) {
  if (const auto* failure = dynamic_cast<const Failure*>(&error)) return failure->fault();
  if (dynamic_cast<const std::invalid_argument*>(&error) != nullptr) return Fault::wrong_use;
  const auto* system = dynamic_cast<const std::system_error*>(&error);
  const bool is_full = system != nullptr && system->code() == std::errc::no_space_on_device;
  return is_full ? Fault::disk_full : Fault::failed;
}

/// Returns the outcome of a failure before any rank started.
Outcome failed_before_start(const std::exception& error, int64_t step) {
  Outcome outcome{.end = Outcome::End::failed, .step = step, .fault = fault_in(error)};
  outcome.reason = error.what();
  outcome.may_restart = true;
  return outcome;
}

}  // namespace

Supervisor::Supervisor(Job& job, const RunDirectory& directory)
    : job_(job), directory_(directory), events_(directory.events()) {}

std::vector<std::string> Supervisor::begin() {
  try {
    return begin_attempt(directory_.is_unfinished(), VerificationTime::while_read);
  } catch (const Failure& failure) {
    if (job_.config.max_failures == 0) throw;
    failed_begin_ = failed_before_start(failure, 0);
    return {};
  }
}

std::vector<std::string> Supervisor::begin_attempt(bool goes_on, VerificationTime verified) {
  Resumption resumption = runtime::begin_attempt(job_, directory_, events_, goes_on, verified);
  from_step_ = resumption.step;
  const std::vector<std::string> collected = recordings_of(job_, directory_).collect_left();
  resumption.lines.insert(resumption.lines.end(), collected.begin(), collected.end());
  return std::move(resumption.lines);
}

Outcome Supervisor::attempt(const WatchedSignals& signals) const {
  try {
    Outcome outcome = launch(job_, directory_, signals);
    collect_recordings(job_, directory_, job_.ranks);
    return outcome;
  } catch (const std::runtime_error& error) {
    return failed_before_start(error, from_step_);
  }
}

Outcome Supervisor::run() {
  const WatchedSignals signals;
  Outcome outcome = failed_begin_ ? *failed_begin_ : attempt(signals);
  for (;;) {
    if (outcome.memory_kills) log_event(kMemoryKills, *outcome.memory_kills, outcome.step);
    events_.add(end_of(job_, outcome));
    if (outcome.end != Outcome::End::failed || !outcome.may_restart) break;
    if (outcome.fault == Fault::damaged && job_.attempt.verifies) {
      outcome = look_for_another(outcome, signals);
      continue;
    }
    failures_.push_back({.from_step = from_step_,
                         .reached_step = outcome.step,
                         .fault = outcome.fault,
                         .rank = outcome.rank,
                         .has_begun = outcome.has_begun});
    const RestartDecision decision = decide(
        {.max_failures = job_.config.max_failures, .give_up_after = job_.config.give_up_after},
        failures_);
    if (!decision.why_not.empty()) {
      log_event("gave_up", decision.why_not, outcome.step);
      outcome.reason += "; " + decision.why_not;
    }
    if (!decision.restarts) break;
    outcome = restart(outcome, decision.pause, signals);
  }
  write_unfinished(job_, directory_, outcome);
  return outcome;
}

Outcome Supervisor::restart(const Outcome& last, std::chrono::milliseconds pause,
                            const WatchedSignals& signals) {
  clear_bar();
  const std::string which =
      fmt::format("failure {}{}", failures_.size(), limit_text(job_.config.max_failures));
  fmt::print(stderr, "shardlens train: {}; {}: restarting in {:.2f} s\n", shown(last.reason), which,
             static_cast<double>(pause.count()) / 1e3);
  if (const int signal = wait_for_signal(signals, pause)) return ended_by(signal);
  return start_again(fmt::format("{}: {}", which, last.reason), last, VerificationTime::while_read,
                     signals);
}

/// Restarts from another checkpoint. This does not count as a failure of the run: either there is
/// an older checkpoint, or the run is refused as it would have been at first.
Outcome Supervisor::look_for_another(const Outcome& last, const WatchedSignals& signals) {
  clear_bar();
  fmt::print(stderr, "shardlens train: {}; looking for a whole checkpoint\n", shown(last.reason));
  return start_again(last.reason, last, VerificationTime::before, signals);
}

Outcome Supervisor::start_again(const std::string& why, const Outcome& last,
                                VerificationTime verified, const WatchedSignals& signals) {
  ++job_.attempt.restarts;
  try {
    const std::vector<std::string> lines = begin_attempt(true, verified);
    log_event("restarted", why, from_step_);
    for (const std::string& line : lines) fmt::print("{}\n", line);
  } catch (const std::exception& error) {
    return failed_before_start(error, last.step);
  }
  return attempt(signals);
}

int Supervisor::wait_for_signal(const WatchedSignals& signals, std::chrono::milliseconds pause) {
  const auto end = Clock::now() + pause;
  for (auto now = Clock::now(); now < end; now = Clock::now()) {
    const int signal =
        signals.next(std::chrono::duration_cast<std::chrono::milliseconds>(end - now));
    if (signal != 0 && signal != SIGCHLD) return signal;
  }
  return 0;
}

/// Returns the outcome of a signal between two attempts: then nothing is left to save.
Outcome Supervisor::ended_by(int signal) const {
  Outcome outcome{.step = failures_.back().reached_step, .signal = signal};
  const bool can_go_on = signal != SIGINT && job_.checkpointing.wanted;
  outcome.end = can_go_on ? Outcome::End::preempted : Outcome::End::failed;
  outcome.fault = Fault::interrupted;
  outcome.reason = "interrupted between two attempts";
  return outcome;
}

void Supervisor::log_event(std::string kind, std::string text, int64_t step) {
  events_.add({.generation = job_.attempt.fence.generation(),
               .kind = std::move(kind),
               .step = step,
               .text = std::move(text)});
}

}  // namespace shardlens::runtime
