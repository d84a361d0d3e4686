#include "runtime/launch/rank_process.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/spdlog.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include "base/durable_files.h"
#include "planner/config/options.h"
#include "profiler/recorder/recorder.h"
#include "runtime/comm/board/board.h"
#include "runtime/execute/device.h"
#include "runtime/execute/streams.h"
#include "runtime/launch/attempt.h"
#include "runtime/launch/rendezvous.h"
#include "runtime/launch/rendezvous_store.h"
#include "runtime/launch/setup_checks.h"
#include "runtime/train/trainer.h"

namespace shardlens::runtime {

namespace {

void log_to(const std::filesystem::path& file) {
  auto logger = spdlog::basic_logger_mt("rank", file.string());
  logger->flush_on(spdlog::level::info);
  spdlog::set_default_logger(std::move(logger));
}

/// Tells the launcher and all waiting ranks why this rank gives up.
void raise_abort(const Board& board, const std::string& reason, Fault fault, int rank) {
  spdlog::error(reason);
  board.abort_note().raise(reason, fault, rank);
}

/// Returns the error's text: first our own in one line, then LibTorch's.
std::string out_of_memory(const Job& job, int rank, const std::string& where,
                          const c10::OutOfMemoryError& error) {
  return fmt::format(
      "rank {} ran out of memory on {} in {}; give a smaller --batch, more ranks, {}or "
      "--param-dtype bf16{}\n{}",
      rank, text_of(job.config.device), where,
      job.strategy.reshard_after_forward == planner::Reshard::no ? "--reshard-after-forward true, "
                                                                 : "",
      job.recording.wanted ? "" : "; train with --profile on to see what held the memory",
      error.what_without_backtrace());
}

/// Starts the recording. Returns null if the user did not ask for one.
std::unique_ptr<profiler::Recorder> record(const Job& job, const RunDirectory& directory, int rank,
                                           const c10::Device& device,
                                           std::optional<int64_t> device_before_bytes) {
  if (!job.recording.wanted) return nullptr;
  const std::filesystem::path file = recordings_of(job, directory).file(rank);
  make_folders(file.parent_path());
  std::filesystem::remove(file);  // a rank of an earlier attempt may still have it open
  profiler::Header header{.rank = rank,
                          .world_size = job.strategy.world_size,
                          .device = text_of(job.config.device),
                          .notice = job.notice,
                          .config = to_json(job.config),
                          .train = to_text(job.train),
                          .evaluate = to_text(job.evaluate)};
  describe_device(device, header);
  profiler::RecorderOptions options{.path = file.string(),
                                    .header = header,
                                    .on_cuda = device.is_cuda(),
                                    .device_before_bytes = device_before_bytes};
  if (job.recording.steps) {
    options.steps = {.first = job.recording.steps->first, .last = job.recording.steps->last};
  }
  return std::make_unique<profiler::Recorder>(options);
}

std::unique_ptr<Links> meet(const Job& job, const Seat& seat, const Streams& streams) {
  const profiler::Scope scope(profiler::Category::communication, "communicators");
  return join(job, seat.rank, seat.region, streams, seat.store);
}

/// Names the ranks that no longer respond. A rank of another launcher sees no board but its own.
Failure with_silent(const Job& job, const Seat& seat, const Failure& failure) {
  if (seat.store == nullptr) return failure;
  return seat.store->with_silent(failure,
                                 [&](const RankStatus& last) { return describe(job, last); });
}

/// Throws if two ranks are on one GPU, which NCCL refuses.
void check_gpu(const Job& job, const Seat& seat, const Board& board, const c10::Device& device) {
  if (!needs_own_gpu(job)) return;
  if (seat.store != nullptr) exchange_gpus(*seat.store, seat.rank, gpu_uuid(device));
  expect_own_gpu(board, seat.rank, gpu_uuid(device), deadline_of(job.config));
}

/// Returns the function that asks if the run must stop. It is empty if the launcher says so on the
/// board, or if the run cannot save.
std::function<bool(int64_t)> stop_of(const Job& job, const Seat& seat) {
  if (seat.store == nullptr || !job.checkpointing.wanted) return {};
  seat.store->may_stop();
  return [&store = *seat.store](int64_t step) { return store.must_stop(step); };
}

void log_summary(const profiler::RecorderSummary& summary) {
  spdlog::info("profile: {} events, {} lost, {} bytes", summary.events, summary.lost_events,
               summary.file_bytes);
  if (summary.driver) spdlog::warn("profile: {}", *summary.driver);
  if (summary.failure) spdlog::error("profile: {}", *summary.failure);
}

void write_result(const Job& job, const RunDirectory& directory, const TrainResult& result) {
  job.attempt.fence.check();
  write_file(directory.result(), to_json(result));
}

/// Trains as this rank, and returns the exit code.
int run_rank(const Job& job, const RunDirectory& directory, const Seat& seat, const Board& board) {
  const int rank = seat.rank;
  const int gpu = job.gpus > 0 ? seat.local_rank % job.gpus : 0;
  const bool is_shared = job.recording.wanted && job.device.kind == DeviceKind::cuda;
  const auto device_before_bytes = is_shared ? profiler::device_used_bytes(gpu) : std::nullopt;
  const c10::Device device = open_device(job.device, gpu);
  check_gpu(job, seat, board, device);
  const auto recorder = record(job, directory, rank, device, device_before_bytes);
  take_workspaces(device);
  const auto streams = make_streams(device, job.config.communicators == 1);
  const auto links = meet(job, seat, *streams);
  expect_same_job(job, rank, links->channels());
  spdlog::info("rank {} of {} joined", rank, job.strategy.world_size);
  const TrainResult result = train_rank(job, {.rank = rank,
                                              .device = device,
                                              .streams = streams.get(),
                                              .channels = links->channels(),
                                              .board = board,
                                              .run = directory.path(),
                                              .metrics = directory.metrics(),
                                              .must_stop = stop_of(job, seat)});
  const bool is_whole = !result.is_preempted;
  if (is_whole && job.writes_results(rank)) write_result(job, directory, result);
  board.enter(rank, RankPhase::finished, result.steps, 0);
  if (recorder) log_summary(recorder->close());
  return is_whole ? 0 : kPreempted;
}

/// Runs the rank, and returns its exit code. The reason for a failure is raised on the board.
int code_of(const Job& job, const RunDirectory& directory, const Seat& seat, const Board& board) {
  const int rank = seat.rank;
  const auto failed = [&](const std::exception& error) {
    return fmt::format("rank {} failed in {}: {}", rank, describe(job, board.read(rank)),
                       error.what());
  };
  try {
    log_to(directory.log(rank));
    return run_rank(job, directory, seat, board);
  } catch (const std::invalid_argument& error) {
    raise_abort(board, error.what(), Fault::wrong_use, rank);
  } catch (const CommunicationError& error) {
    const Failure failure = with_silent(job, seat, error);
    raise_abort(board, failure.what(), failure.fault(), failure.rank());
  } catch (const Failure& error) {
    raise_abort(board, failed(error), error.fault(), error.rank() < 0 ? rank : error.rank());
  } catch (const c10::OutOfMemoryError& error) {
    raise_abort(board, out_of_memory(job, rank, describe(job, board.read(rank)), error),
                Fault::out_of_memory, rank);
  } catch (const std::exception& error) {
    raise_abort(board, failed(error), Fault::failed, rank);
  }
  return 1;
}

}  // namespace

int live_as_rank(const Job& job, const RunDirectory& directory, const Seat& seat) {
  const Board board(seat.region, job.strategy.world_size);
  const int code = code_of(job, directory, seat, board);
  spdlog::shutdown();
  return code;
}

void end_with(pid_t parent) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(1);
}

void be_rank(const Job& job, const RunDirectory& directory, int rank, std::byte* region,
             const Parent& parent) {
  end_with(parent.pid);
  // A terminal or a scheduler sends these to the whole group; only the launcher decides.
  std::signal(SIGINT, SIG_IGN);
  for (const int signal : kStopSignals) std::signal(signal, SIG_IGN);
  // A lost peer is an error to report, not a reason to die. Gloo writes to sockets, so SIGPIPE is
  // ignored.
  std::signal(SIGPIPE, SIG_IGN);
  parent.signals.restore();
  const int code =
      live_as_rank(job, directory, {.rank = rank, .local_rank = rank, .region = region});
  std::fflush(stdout);
  // This does not call exit(): gloo's threads may be stuck waiting for a lost peer.
  ::_exit(code);
}

}  // namespace shardlens::runtime
