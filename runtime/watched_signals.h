// Signals that the launcher takes one by one instead of being interrupted by them: the end or stop
// of a rank, and what a user or a scheduler sends.
#pragma once

#include <algorithm>
#include <chrono>
#include <csignal>
#include <ctime>

namespace shardlens::runtime {

/// While it lives they are blocked, in this thread and those that it starts.
class WatchedSignals {
 public:
  WatchedSignals() {
    ::sigemptyset(&set_);
    for (const int signal : {SIGCHLD, SIGINT, SIGTERM, SIGUSR1}) ::sigaddset(&set_, signal);
    ::sigprocmask(SIG_BLOCK, &set_, &before_);
  }
  ~WatchedSignals() { restore(); }
  WatchedSignals(const WatchedSignals&) = delete;
  WatchedSignals& operator=(const WatchedSignals&) = delete;

  /// In a rank, which has them as they were.
  void restore() const { ::sigprocmask(SIG_SETMASK, &before_, nullptr); }

  /// The next signal, or 0 after so long.
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
