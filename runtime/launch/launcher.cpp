#include "runtime/launch/launcher.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "base/process/host_limits.h"
#include "runtime/comm/board/rank_watch.h"
#include "runtime/comm/board/shared_region.h"
#include "runtime/launch/action_report.h"
#include "runtime/launch/rank_process.h"
#include "runtime/launch/rendezvous.h"

namespace shardlens::runtime {

namespace {

using Clock = std::chrono::steady_clock;

/// The time that the other ranks may take to end by themselves once one rank has failed.
constexpr auto kGrace = std::chrono::seconds(3);
/// The time that the kernel may take to end a killed process: a process that waits for a device or
/// a network disk does not end before that device or disk answers.
constexpr auto kKernelGrace = std::chrono::seconds(60);
constexpr auto kLook = std::chrono::milliseconds(100);

/// True if this is the exit status of a rank that ended well.
bool is_good(int status) {
  return WIFEXITED(status) && (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == kPreempted);
}

std::chrono::nanoseconds seconds(double value) {
  return std::chrono::nanoseconds(static_cast<int64_t>(value * 1e9));
}

class Launcher {
 public:
  Launcher(const Job& job, const RunDirectory& directory, const WatchedSignals& signals)
      : job_(job),
        directory_(directory),
        region_(SharedRegion::create(region_bytes(job))),
        board_(Board::initialise(region_.data(), job.strategy.world_size)),
        signals_(signals),
        watch_(job.ranks, board_, seconds(job.config.timeout_s)),
        pids_(static_cast<size_t>(job.strategy.world_size), 0) {}

  Outcome run() {
    std::fflush(stdout);
    for (const int rank : job_.ranks) start(rank);
    while (living() > 0 && !is_out_of_reach()) watch();
    if (!has_failed()) {
      outcome_.step = board_.read(job_.ranks.front()).step;
      outcome_.end = is_preempted_ ? Outcome::End::preempted : Outcome::End::finished;
      return outcome_;
    }
    if (outcome_.fault == Fault::hung) {
      outcome_.reason +=
          "; each rank's last actions: " + directory_.actions(job_.ranks.front()).string();
    }
    outcome_.may_restart = living() == 0 && outcome_.signal == 0;
    if (outcome_.fault != Fault::wrong_use) {
      for (const int rank : job_.ranks) write_actions(job_, board_, rank, directory_.actions(rank));
    }
    return outcome_;
  }

 private:
  struct RankExit {
    int rank;
    int status;
  };

  void start(int rank) {
    const Parent parent{.pid = ::getpid(), .signals = signals_};
    const pid_t pid = ::fork();
    if (pid == 0) be_rank(job_, directory_, rank, region_.data(), parent);
    if (pid < 0) {
      fail(fmt::format("rank {} could not be started: {}", rank, std::strerror(errno)),
           Fault::failed, rank);
    } else {
      pids_[rank] = pid;
    }
  }

  void watch() {
    const int signal = signals_.next(kLook);
    if (signal != 0 && signal != SIGCHLD) take_signal(signal);
    judge(reap());
    if (has_failed()) return end_slow_ones();
    if (stop_by_ && Clock::now() > *stop_by_) {
      fail(fmt::format("not saved within --grace {} s of signal {} ({}); {}", job_.config.grace_s,
                       outcome_.signal, ::strsignal(outcome_.signal), rank_positions_text()),
           Fault::interrupted);
      return end_all();
    }
    if (const std::optional<QuietRank> quiet = watch_.look(Clock::now())) {
      fail(fmt::format("rank {} {}; last seen in {}", quiet->rank, quiet->what,
                       describe(job_, board_.read(quiet->rank))),
           Fault::hung, quiet->rank);
    }
  }

  /// Returns the ranks that have ended, and notes those that were stopped or continued.
  std::vector<RankExit> reap() {
    std::vector<RankExit> ended;
    int status = 0;
    for (pid_t pid = 0; (pid = ::waitpid(-1, &status, WNOHANG | WUNTRACED | WCONTINUED)) > 0;) {
      const auto found = std::find(pids_.begin(), pids_.end(), pid);
      if (found == pids_.end()) continue;
      const auto rank = static_cast<int>(found - pids_.begin());
      if (WIFSTOPPED(status) || WIFCONTINUED(status)) {
        watch_.set_stopped(rank, WIFSTOPPED(status));
        continue;
      }
      *found = 0;
      watch_.set_ended(rank, is_good(status));
      ended.push_back({rank, status});
    }
    return ended;
  }

  /// Fails the attempt if a rank ended badly. Among ranks that ended together, one killed by a
  /// signal is the cause: a rank that lost a peer ends after that peer.
  void judge(const std::vector<RankExit>& ended) {
    for (const RankExit& one : ended) {
      if (WIFEXITED(one.status) && WEXITSTATUS(one.status) == kPreempted) is_preempted_ = true;
    }
    const auto find = [&](auto is_it) { return std::ranges::find_if(ended, is_it); };
    auto worst = find([](const RankExit& one) { return WIFSIGNALED(one.status); });
    if (worst == ended.end())
      worst = find([](const RankExit& one) { return !is_good(one.status); });
    if (worst != ended.end() && !has_failed()) rank_failed(*worst);
  }

  void rank_failed(const RankExit& ended) {
    const AbortNote& note = board_.abort_note();
    if (!WIFSIGNALED(ended.status) && note.is_raised()) return fail_as_noted(note);
    if (WIFSIGNALED(ended.status) && WTERMSIG(ended.status) == SIGKILL) {
      outcome_.memory_kills = memory_.kills();
    }
    const std::string how =
        WIFSIGNALED(ended.status)
            ? fmt::format("was killed by signal {} ({})", WTERMSIG(ended.status),
                          ::strsignal(WTERMSIG(ended.status)))
            : fmt::format("ended with exit code {}", WEXITSTATUS(ended.status));
    const std::string memory = outcome_.memory_kills ? "; " + *outcome_.memory_kills : "";
    fail(fmt::format("rank {} {}; last seen in {}{}", ended.rank, how,
                     describe(job_, board_.read(ended.rank)), memory),
         WIFSIGNALED(ended.status) ? Fault::killed : Fault::failed, ended.rank);
  }

  /// Fails with the note's reason. But if a rank stands still, that rank is to blame for what the
  /// others report.
  void fail_as_noted(const AbortNote& note) {
    const std::optional<int> stopped = watch_.stopped_rank();
    const bool is_lost = note.fault() == Fault::hung || note.fault() == Fault::connection;
    if (!is_lost) return fail(note.reason(), note.fault(), note.rank());
    if (stopped) {
      return fail(fmt::format("{}; rank {} is stopped (a signal such as SIGSTOP), in {}",
                              note.reason(), *stopped, describe(job_, board_.read(*stopped))),
                  Fault::hung, *stopped);
    }
    const bool is_told = job_.strategy.communicator == planner::CommunicatorKind::local;
    fail(note.reason() + (is_told ? "" : "; " + rank_positions_text()), note.fault(), note.rank());
  }

  /// Says where all ranks are. Not every communicator says which rank is late; the board does.
  std::string rank_positions_text() const {
    std::map<std::pair<int64_t, int32_t>, std::vector<int>> ranks_at;
    for (const int rank : job_.ranks) {
      const RankStatus status = board_.read(rank);
      ranks_at[{status.step, status.action}].push_back(rank);
    }
    const std::vector<int>& behind = ranks_at.begin()->second;
    return fmt::format("furthest behind: rank {}, in {}", fmt::join(behind, ", rank "),
                       describe(job_, board_.read(behind.front())));
  }

  /// Handles a signal. The first of kStopSignals lets a run save.
  void take_signal(int signal) {
    const bool is_first = std::exchange(outcome_.signal, signal) == 0;
    if (is_first && signal != SIGINT && job_.checkpointing.wanted && !has_failed()) {
      stop_by_ = Clock::now() + seconds(job_.config.grace_s);
      return board_.ask_to_stop();
    }
    fail(fmt::format("interrupted in {}", describe(job_, board_.read(job_.ranks.front()))),
         Fault::interrupted);
    end_all();
  }

  /// Keeps the first reason, which is the cause; what follows from that is not reported.
  void fail(const std::string& reason, Fault fault, int rank = -1) {
    if (has_failed()) return;
    outcome_.end = Outcome::End::failed;
    outcome_.reason = reason;
    outcome_.fault = fault;
    outcome_.rank = rank;
    const RankStatus status = board_.read(rank >= 0 ? rank : job_.ranks.front());
    outcome_.step = status.step;
    outcome_.has_begun = status.phase != RankPhase::starting;
    failed_at_ = Clock::now();
    board_.abort_note().raise(reason, fault, rank);
  }

  /// Ends ranks that take too long, or all at once if all are stopped: stopped ranks never end by
  /// themselves.
  void end_slow_ones() const {
    if (Clock::now() > failed_at_ + kGrace || watch_.all_stopped()) end_all();
  }

  void end_all() const {
    for (const pid_t pid : pids_) {
      if (pid > 0) ::kill(pid, SIGKILL);
    }
  }

  /// True if a process was killed long ago, and has not ended.
  bool is_out_of_reach() {
    if (!has_failed() || Clock::now() < failed_at_ + kGrace + kKernelGrace) return false;
    outcome_.reason +=
        fmt::format("; {} of its processes cannot be killed; check their devices", living());
    return true;
  }

  bool has_failed() const { return outcome_.end == Outcome::End::failed; }

  int64_t living() const {
    return std::count_if(pids_.begin(), pids_.end(), [](pid_t pid) { return pid > 0; });
  }

  const Job& job_;
  const RunDirectory& directory_;
  SharedRegion region_;
  Board board_;
  const WatchedSignals& signals_;
  RankWatch watch_;
  const MemoryKillWatch memory_;
  std::vector<pid_t> pids_;  // by rank; 0: has ended
  bool is_preempted_ = false;
  std::optional<Clock::time_point> stop_by_;  // if it was asked to save and stop
  Outcome outcome_;
  Clock::time_point failed_at_;
};

}  // namespace

Outcome launch(const Job& job, const RunDirectory& directory, const WatchedSignals& signals) {
  return Launcher(job, directory, signals).run();
}

}  // namespace shardlens::runtime
