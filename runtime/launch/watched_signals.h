// Lets the launcher take signals one by one instead of being interrupted: the end or stop of a
// rank, and signals from a user or a scheduler.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <ctime>

namespace shardlens::runtime {

/// The signals by which a scheduler asks a run to save and end. NCCL may catch SIGUSR1, so some
/// send SIGUSR2 instead.
inline constexpr std::array kStopSignals = {SIGTERM, SIGUSR1, SIGUSR2};

/// Blocks the signals while it lives, in this thread and in threads that it starts.
class WatchedSignals {
 public:
  WatchedSignals() {
    ::sigemptyset(&set_);
    for (const int signal : {SIGCHLD, SIGINT}) ::sigaddset(&set_, signal);
    for (const int signal : kStopSignals) ::sigaddset(&set_, signal);
    ::sigprocmask(SIG_BLOCK, &set_, &before_);
  }
  ~WatchedSignals() { restore(); }
  WatchedSignals(const WatchedSignals&) = delete;
  WatchedSignals& operator=(const WatchedSignals&) = delete;

  /// Restores the signal mask from before. A rank calls it, to get the signals as usual.
  void restore() const { ::sigprocmask(SIG_SETMASK, &before_, nullptr); }

  /// Returns the next signal, or 0 if none comes within `patience`.
  int next(std::chrono::milliseconds patience) const {
    const auto seconds = std::chrono::floor<std::chrono::seconds>(patience);
    const std::chrono::nanoseconds rest = patience - seconds;
    const timespec time{.tv_sec = seconds.count(), .tv_nsec = rest.count()};
    return std::max(::sigtimedwait(&set_, nullptr, &time), 0);
  }

 private:
  sigset_t set_{};
  sigset_t before_{};
};

}  // namespace shardlens::runtime
