// Waits for the signals that ask a process to end, so that it ends what it started first.
#pragma once

#include <csignal>
#include <optional>

namespace shardlens {

/// Blocks SIGINT, SIGTERM, SIGHUP and SIGCHLD for as long as it lives.
class AwaitedSignals {
 public:
  AwaitedSignals() {
    ::sigemptyset(&awaited_);
    for (const int signal : {SIGCHLD, SIGINT, SIGTERM, SIGHUP}) ::sigaddset(&awaited_, signal);
    ::sigprocmask(SIG_BLOCK, &awaited_, &before_);
  }
  ~AwaitedSignals() { ::sigprocmask(SIG_SETMASK, &before_, nullptr); }
  AwaitedSignals(const AwaitedSignals&) = delete;
  AwaitedSignals& operator=(const AwaitedSignals&) = delete;

  const sigset_t& previous_mask() const { return before_; }

  /// Returns a signal that asks this process to end, if one comes within a moment; at once when a
  /// child ends.
  std::optional<siginfo_t> next() const {
    const timespec moment{.tv_sec = 0, .tv_nsec = 200'000'000};
    siginfo_t signal{};
    const int number = ::sigtimedwait(&awaited_, &signal, &moment);
    return number > 0 && number != SIGCHLD ? std::optional(signal) : std::nullopt;
  }

 private:
  sigset_t awaited_{};
  sigset_t before_{};
};

}  // namespace shardlens
