#include "runtime/launcher.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/spdlog.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <ctime>
#include <map>
#include <stdexcept>
#include <utility>
#include <vector>

#include "profiler/recorder.h"
#include "runtime/comm/shared_region.h"
#include "runtime/device.h"
#include "runtime/durable_files.h"
#include "runtime/rendezvous.h"
#include "runtime/setup_checks.h"
#include "runtime/streams.h"
#include "runtime/trainer.h"

namespace shardlens::runtime {

namespace {

using Clock = std::chrono::steady_clock;

/// How long the others may take to end by themselves once one rank has failed.
constexpr auto kGrace = std::chrono::seconds(3);

/// The exit code of a rank that found something for the user to mend.
constexpr int kWrongUse = 2;

void log_to(const std::filesystem::path& file) {
  auto logger = spdlog::basic_logger_mt("rank", file.string());
  logger->flush_on(spdlog::level::info);
  spdlog::set_default_logger(std::move(logger));
}

/// Lets the launcher and every waiting rank know why.
void give_up(const Board& board, const std::string& reason) {
  spdlog::error(reason);
  board.abort_note().raise(reason);
}

/// How the reason begins where a rank ran out of memory.
std::string out_of_memory_words(int rank) { return fmt::format("rank {} ran out of memory", rank); }

/// Ours first, in one line, then LibTorch's own.
std::string out_of_memory(const Job& job, int rank, const std::string& where,
                          const c10::OutOfMemoryError& error) {
  return fmt::format(
      "{} on {} in {}; give a smaller --batch, more ranks, {}or --param-dtype bf16{}\n{}",
      out_of_memory_words(rank), job.config.device, where,
      job.config.reshard_after_forward == "false" ? "--reshard-after-forward true, " : "",
      job.recording.wanted ? "" : "; train with --profile on to see what held the memory",
      error.what_without_backtrace());
}

/// Nothing where the user asks for no recording.
std::unique_ptr<profiler::Recorder> record(const Job& job, const RunDirectory& directory, int rank,
                                           const c10::Device& device,
                                           std::optional<int64_t> device_before_bytes) {
  if (!job.recording.wanted) return nullptr;
  profiler::Header header{.rank = rank,
                          .world_size = job.strategy.world_size,
                          .device = job.config.device,
                          .notice = job.notice,
                          .config = to_json(job.config),
                          .train = to_text(job.train),
                          .evaluate = to_text(job.evaluate)};
  describe_device(device, header);
  profiler::RecorderOptions options{.path = directory.profile(rank).string(),
                                    .header = header,
                                    .on_cuda = device.is_cuda(),
                                    .device_before_bytes = device_before_bytes};
  if (job.recording.steps) {
    options.steps = {.first = job.recording.steps->first, .last = job.recording.steps->last};
  }
  return std::make_unique<profiler::Recorder>(options);
}

std::unique_ptr<Links> meet(const Job& job, int rank, void* region, const Streams& streams) {
  const profiler::Scope scope(profiler::Category::communication, "communicators");
  return join(job, rank, region, streams);
}

std::chrono::milliseconds deadline_of(const Job& job) {
  return std::chrono::milliseconds(static_cast<int64_t>(job.config.timeout_s * 1e3));
}

void log_summary(const profiler::RecorderSummary& summary) {
  spdlog::info("profile: {} events, {} lost, {} bytes", summary.events, summary.lost_events,
               summary.file_bytes);
  if (!summary.driver.empty()) spdlog::warn("profile: {}", summary.driver);
  if (!summary.failure.empty()) spdlog::error("profile: {}", summary.failure);
}

void run_rank(const Job& job, const RunDirectory& directory, int rank, void* region,
              const Board& board) {
  const int gpu = job.gpus > 0 ? rank % job.gpus : 0;
  const bool is_shared = job.recording.wanted && job.device.kind == planner::DeviceKind::cuda;
  const auto device_before_bytes = is_shared ? profiler::device_used_bytes(gpu) : std::nullopt;
  const c10::Device device = open_device(job.device, gpu);
  if (needs_own_gpu(job)) expect_own_gpu(board, rank, gpu_uuid(device), deadline_of(job));
  const auto recorder = record(job, directory, rank, device, device_before_bytes);
  take_workspaces(device);
  const auto streams = make_streams(device, job.config.communicators == 1);
  const auto links = meet(job, rank, region, *streams);
  expect_same_job(job, rank, links->channels());
  spdlog::info("rank {} of {} joined", rank, job.strategy.world_size);
  const TrainResult result = train_rank(job, {.rank = rank,
                                              .device = device,
                                              .streams = streams.get(),
                                              .channels = links->channels(),
                                              .board = board,
                                              .run = directory.path(),
                                              .metrics = directory.metrics()});
  if (job.writes_results(rank)) write_file(directory.result(), to_json(result));
  board.enter(rank, Phase::finished, result.steps, 0);
  if (recorder) log_summary(recorder->close());
}

/// The life of a rank's process; never returns, and never runs the launcher's destructors.
[[noreturn]] void be_rank(const Job& job, const RunDirectory& directory, int rank,
                          std::byte* region, pid_t launcher) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != launcher) ::_exit(1);
  const Board board(region, job.strategy.world_size);
  int code = 1;
  try {
    log_to(directory.log(rank));
    run_rank(job, directory, rank, region, board);
    code = 0;
  } catch (const std::invalid_argument& error) {
    give_up(board, error.what());
    code = kWrongUse;
  } catch (const CommunicationError& error) {
    give_up(board, error.what());
  } catch (const c10::OutOfMemoryError& error) {
    give_up(board, out_of_memory(job, rank, describe(job, board.read(rank)), error));
  } catch (const std::exception& error) {
    give_up(board, fmt::format("rank {} failed in {}: {}", rank, describe(job, board.read(rank)),
                               error.what()));
  }
  spdlog::shutdown();
  std::fflush(stdout);
  // Not exit(): gloo's threads may be stuck in a peer that is gone.
  ::_exit(code);
}

/// Signals that the launcher takes one by one instead of being interrupted by them.
class WatchedSignals {
 public:
  WatchedSignals() {
    ::sigemptyset(&set_);
    for (const int signal : {SIGCHLD, SIGINT, SIGTERM}) ::sigaddset(&set_, signal);
    ::sigprocmask(SIG_BLOCK, &set_, &before_);
  }
  ~WatchedSignals() { restore(); }
  void restore() const { ::sigprocmask(SIG_SETMASK, &before_, nullptr); }

  /// The next signal, or 0 after a short while.
  int next() const {
    const timespec patience{.tv_sec = 0, .tv_nsec = 100'000'000};
    const int signal = ::sigtimedwait(&set_, nullptr, &patience);
    return std::max(signal, 0);
  }

 private:
  sigset_t set_{};
  sigset_t before_{};
};

class Launcher {
 public:
  Launcher(const Job& job, const RunDirectory& directory)
      : job_(job),
        directory_(directory),
        region_(SharedRegion::create(region_bytes(job))),
        board_(Board::initialise(region_.data(), job.strategy.world_size)),
        pids_(static_cast<size_t>(job.strategy.world_size), 0) {}

  Outcome run() {
    std::fflush(stdout);
    for (const int rank : job_.ranks) start(rank);
    while (living() > 0) watch();
    if (!outcome_.ok) {
      write_file(directory_.result(),
                 failure_json(outcome_.reason, board_.read(job_.ranks.front()).step));
    }
    return outcome_;
  }

 private:
  void start(int rank) {
    const pid_t launcher = ::getpid();
    const pid_t pid = ::fork();
    if (pid == 0) {
      // Ctrl-C reaches the whole terminal group; the launcher alone decides.
      std::signal(SIGINT, SIG_IGN);
      // A peer that is gone is an error to be told, not a reason to die: Gloo writes to sockets.
      std::signal(SIGPIPE, SIG_IGN);
      signals_.restore();
      be_rank(job_, directory_, rank, region_.data(), launcher);
    }
    if (pid < 0) {
      fail(fmt::format("rank {} could not be started: {}", rank, std::strerror(errno)));
    } else {
      pids_[rank] = pid;
    }
  }

  void watch() {
    const int signal = signals_.next();
    if (signal == SIGINT || signal == SIGTERM) interrupt(signal);
    reap();
    if (!outcome_.ok && Clock::now() > failed_at_ + kGrace) end_all(SIGKILL);
  }

  void reap() {
    int status = 0;
    for (pid_t pid = 0; (pid = ::waitpid(-1, &status, WNOHANG)) > 0;) {
      const auto found = std::find(pids_.begin(), pids_.end(), pid);
      if (found == pids_.end()) continue;
      *found = 0;
      if (status != 0) rank_failed(static_cast<int>(found - pids_.begin()), status);
    }
  }

  void rank_failed(int rank, int status) {
    if (WIFEXITED(status) && WEXITSTATUS(status) == kWrongUse) outcome_.is_wrong_use = true;
    const std::string noted = board_.abort_note().reason();
    if (!noted.empty()) {
      if (outcome_.ok) outcome_.out_of_memory_rank = rank_without_memory(noted);
      return fail(noted + furthest_behind());
    }
    const std::string how = WIFSIGNALED(status)
                                ? fmt::format("was killed by signal {} ({})", WTERMSIG(status),
                                              ::strsignal(WTERMSIG(status)))
                                : fmt::format("ended with exit code {}", WEXITSTATUS(status));
    fail(fmt::format("rank {} {}; last seen in {}", rank, how, describe(job_, board_.read(rank))));
  }

  /// Ranks leave nothing but text behind.
  std::optional<int> rank_without_memory(const std::string& reason) const {
    for (const int rank : job_.ranks) {
      if (reason.starts_with(out_of_memory_words(rank))) return rank;
    }
    return std::nullopt;
  }

  /// Gloo does not say who is late; the board does.
  std::string furthest_behind() const {
    if (job_.strategy.communicator != planner::CommunicatorKind::gloo) return "";
    std::map<std::pair<int64_t, int32_t>, std::vector<int>> ranks_at;
    for (const int rank : job_.ranks) {
      const RankStatus status = board_.read(rank);
      ranks_at[{status.step, status.action}].push_back(rank);
    }
    const std::vector<int>& behind = ranks_at.begin()->second;
    return fmt::format("; furthest behind: rank {}, in {}", fmt::join(behind, ", rank "),
                       describe(job_, board_.read(behind.front())));
  }

  void interrupt(int signal) {
    outcome_.signal = signal;
    fail(fmt::format("interrupted in {}", describe(job_, board_.read(job_.ranks.front()))));
    end_all(SIGTERM);
  }

  /// The first reason is the cause; what follows from it is not told.
  void fail(const std::string& reason) {
    if (!outcome_.ok) return;
    outcome_.ok = false;
    outcome_.reason = reason;
    failed_at_ = Clock::now();
    board_.abort_note().raise(reason);
  }

  void end_all(int signal) const {
    for (const pid_t pid : pids_) {
      if (pid > 0) ::kill(pid, signal);
    }
  }

  int64_t living() const {
    return std::count_if(pids_.begin(), pids_.end(), [](pid_t pid) { return pid > 0; });
  }

  const Job& job_;
  const RunDirectory& directory_;
  SharedRegion region_;
  Board board_;
  WatchedSignals signals_;
  std::vector<pid_t> pids_;  // by rank; 0: has ended
  Outcome outcome_;
  Clock::time_point failed_at_;
};

}  // namespace

Outcome launch(const Job& job, const RunDirectory& directory) {
  return Launcher(job, directory).run();
}

}  // namespace shardlens::runtime
