#include "runtime/launch/external_launcher.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>
#include <stdexcept>
#include <thread>

#include "base/durable_files.h"
#include "base/input_file.h"
#include "base/limits.h"
#include "base/process/host_limits.h"
#include "base/shown.h"
#include "base/strict_json.h"
#include "planner/config/options.h"
#include "runtime/comm/board/shared_region.h"
#include "runtime/launch/action_report.h"
#include "runtime/launch/attempt.h"
#include "runtime/launch/rank_process.h"
#include "runtime/launch/rendezvous_store.h"
#include "runtime/train/progress.h"

namespace shardlens::runtime {

namespace fs = std::filesystem;

namespace {

constexpr const char* kMarker = ".marker";

/// The longest wait of a rank for rank 0 to record why the attempt has failed.
constexpr auto kRecordPatience = std::chrono::seconds(2);

/// The longest wait for a file that another host has just written: shared storage may show it late.
constexpr auto kStoragePatience = std::chrono::seconds(10);

std::string host_name() {
  char name[256] = {};
  ::gethostname(name, sizeof(name) - 1);
  return name;
}

std::string text_in_file(const fs::path& path) { return read_file(path, kDescription.bytes).text; }

void tell_torchrun(const Membership& place, const std::string& reason) {
  if (place.error_file.empty()) return;
  std::ofstream(place.error_file) << error_file_json(reason, std::time(nullptr));
}

/// Holds what rank 0 has decided for all ranks.
struct OpenedRun {
  std::string name;        // of the run in its storage
  std::string checkpoint;  // the folder's name; empty: from the start
  std::string marker;      // the text of the run's .marker file
  int64_t generation = 0;  // of the attempt, on all ranks (fence.h)

  std::string to_json() const {
    return nlohmann::json{
        {"name", name}, {"checkpoint", checkpoint}, {"marker", marker}, {"generation", generation}}
        .dump();
  }
  static OpenedRun from_json(const std::string& text) {
    const auto json = nlohmann::json::parse(text);
    return {.name = json.at("name"),
            .checkpoint = json.at("checkpoint"),
            .marker = json.at("marker"),
            .generation = whole_of(json.at("generation"))};
  }
};

class LaunchedRank {
 public:
  explicit LaunchedRank(const LaunchedTask& task)
      : place_(task.place),
        task_(task),
        config_(config_under_launcher(task.config, task.place)),
        region_(SharedRegion::create(Board::bytes(place_.world_size))),
        board_(Board::initialise(region_.data(), place_.world_size)),
        store_(place_, board_, deadline_of(config_)) {}

  int run() {
    const int code = train();
    const bool has_failed = code != 0 && code != kDoesNotFit && code != kPreempted;
    if (directory_ && !has_failed) collect_recordings(job_, *directory_, {place_.rank});
    if (code == 0 && directory_) end({.end = Outcome::End::finished});
    if (code == kPreempted) tell_preempted();
    if (has_failed) end_badly();
    store_.leave(code != kDoesNotFit);
    return code;
  }

 private:
  int train() {
    try {
      if (!config_.name.empty()) keep_run();
      job_ = prepare_job(config_, task_.own, place_);
      if (does_not_fit()) return kDoesNotFit;
      if (place_.rank == 0) {
        open();
      } else {
        see();
      }
      if (place_.local_rank == 0) collect_left();
      const Seat seat{.rank = place_.rank,
                      .local_rank = place_.local_rank,
                      .region = region_.data(),
                      .store = &store_};
      return live_as_rank(job_, *directory_, seat);
    } catch (const std::invalid_argument& error) {
      board_.abort_note().raise(error.what(), Fault::wrong_use, place_.rank);
    } catch (const CommunicationError& error) {
      const Failure failure =
          store_.with_silent(error, [&](const RankStatus& last) { return describe(job_, last); });
      board_.abort_note().raise(failure.what(), failure.fault(), failure.rank());
    } catch (const Failure& error) {
      board_.abort_note().raise(error.what(), error.fault(), error.rank());
    } catch (const std::exception& error) {
      board_.abort_note().raise(error.what(), Fault::failed, place_.rank);
    }
    return kFailed;
  }

  /// Writes the result of this attempt into the run's folder. Rank 0 does; after a failure another
  /// rank does if rank 0 is gone.
  void end(Outcome outcome) {
    if (!directory_) return;
    const bool has_failed = outcome.end == Outcome::End::failed;
    if (place_.rank != 0 && (!has_failed || has_been_told(outcome))) return;
    try {
      job_.attempt.fence.check();
    } catch (const Failure&) {
      return;  // the attempt that came after this one has recorded its end
    }
    EventLog events(directory_->events());
    outcome.step = board_.read(place_.rank).step;
    if (events.add_end(end_of(job_, outcome))) write_unfinished(job_, *directory_, outcome);
  }

  /// Waits, unless rank 0 is known to be gone, until rank 0 has recorded the failure. Returns false
  /// if it does not.
  bool has_been_told(const Outcome& outcome) const {
    if (outcome.fault == Fault::lost && outcome.rank == 0) return false;
    const auto last_moment = std::chrono::steady_clock::now() + kRecordPatience;
    while (std::chrono::steady_clock::now() < last_moment) {
      if (has_ended(read_events(directory_->events()), job_.attempt.fence.generation()))
        return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    return false;
  }

  void tell_preempted() {
    if (place_.rank != 0) return;
    end({.end = Outcome::End::preempted});
    clear_bar();
    std::puts(fmt::format("preempted after step {}: saved; run the same command to resume",
                          board_.read(0).step)
                  .c_str());
    std::fflush(stdout);
  }

  /// Ends the process with the first failure among all ranks, which every rank prints. It is
  /// recorded first: the process that reads what a rank prints may have been killed.
  [[noreturn]] void end_badly() {
    const Failure first = store_.first_failure();
    if (directory_) leave_traces(first);
    const Problem kills = memory_.kills();
    if (kills && directory_) tell_memory_kills(*kills);
    end({.end = Outcome::End::failed,
         .fault = first.fault(),
         .rank = first.rank(),
         .reason = first.what()});
    tell_torchrun(place_, first.what());
    print_error("shardlens train: " + shown_lines(first.what()));
    if (kills) print_error(fmt::format("shardlens train: on {}, {}", host_name(), *kills));
    const bool is_own = first.rank() == place_.rank;
    if (is_own && directory_ && first.fault() == Fault::out_of_memory) {
      show_memory(job_, *directory_, place_.rank);
    }
    store_.leave(false);
    std::fflush(stdout);
    // This does not call exit(): gloo's threads may be stuck waiting for a lost peer.
    ::_exit(first.fault() == Fault::wrong_use ? kWrongUse : kFailed);
  }

  /// Records what the kernel did on this host. The rank that was killed cannot, and ranks on other
  /// hosts do not see it.
  void tell_memory_kills(const std::string& kills) const {
    EventLog(directory_->events())
        .add_once({.generation = job_.attempt.fence.generation(),
                   .kind = kMemoryKills,
                   .step = board_.read(place_.rank).step,
                   .text = fmt::format("on {}, {}", host_name(), kills)});
  }

  void leave_traces(const Failure& first) const {
    if (first.fault() != Fault::wrong_use) {
      write_actions(job_, board_, place_.rank, directory_->actions(place_.rank));
    }
    collect_recordings(job_, *directory_, {place_.rank});
  }

  /// Collects the recordings that earlier attempts have left on this host.
  void collect_left() const {
    for (const std::string& line : recordings_of(job_, *directory_).collect_left()) {
      fmt::print("{}\n", line);
    }
    std::fflush(stdout);
  }

  /// Keeps what the run has so far: its files if its ranks were started again, for which --fresh
  /// was not meant, and its global batch. A launcher may start again with another number of ranks
  /// without saying that it is a restart: a node has joined, or the job was submitted again. It is
  /// the same run as long as its global batch is the same.
  void keep_run() {
    if (place_.rank == 0) {
      config_.fresh = config_.fresh && store_.most_restarts() == 0;
      store_.set("kept", fmt::format("{} {}", batch_of_run(), config_.fresh ? 1 : 0));
    }
    std::istringstream kept(store_.get("kept", 0, "read the run's batch"));
    kept >> config_.batch >> config_.fresh;
  }

  int64_t batch_of_run() const {
    planner::Config before;
    const fs::path file = fs::path(config_.storage) / config_.name / "config.json";
    const std::string text = text_in_file(file);
    if (text.empty() || config_.fresh) return config_.batch;
    planner::read_json(before, text, file.string());
    const int64_t global = before.batch * before.accumulate * world_size_of(before);
    const int64_t others = config_.accumulate * place_.world_size;
    if (global == config_.batch * others) return config_.batch;
    if (global % others == 0) {
      fmt::print("--batch {} (was {}): {} rank{} the batch of {} in all\n", global / others,
                 config_.batch, place_.world_size, place_.world_size == 1 ? " keeps" : "s keep",
                 global);
      return global / others;
    }
    throw std::invalid_argument(fmt::format(
        "{} has restarted with {} ranks, but the run's batch of {} cannot be divided evenly among "
        "them; start a number of ranks that divides {}",
        to_string(place_.launcher), place_.world_size, global, global / config_.accumulate));
  }

  bool does_not_fit() const {
    const auto forecast =
        task_.forecaster ? task_.forecaster(job_.config, job_.found_data) : std::nullopt;
    if (!forecast || forecast->fits || job_.config.anyway) return false;
    if (place_.rank == 0) {
      fmt::print(stderr,
                 "shardlens train: {}; shardlens plan shows what would fit, --anyway starts it\n",
                 forecast->verdict);
    }
    return true;
  }

  void open() {
    expect_room_for_checkpoints(job_);
    RunDirectory opening = RunDirectory::open(job_.config);
    EventLog events(opening.events());
    // Verifies before the ranks start, because their launcher may not start them a second time.
    const Resumption resumption =
        begin_attempt(job_, opening, events, opening.is_unfinished(), VerificationTime::before);
    // The attempt has begun, so from here on its failure is recorded.
    const RunDirectory& directory = directory_.emplace(std::move(opening));
    std::random_device random;
    const OpenedRun opened{
        .name = directory.path().filename().string(),
        .checkpoint = job_.resume ? job_.resume->filename().string() : "",
        .marker = fmt::format("{} {:08x}{:08x}\n", place_.start_id, random(), random()),
        .generation = job_.attempt.fence.generation()};
    write_file(directory.path() / kMarker, opened.marker);
    store_.set("run", opened.to_json());
    tell_seen();
    store_.wait_for_all("sees", "see the run's folder");
    tell_restart(events, resumption.step);
    fmt::print("{} has started {} ranks, {} of them on this host\n", to_string(place_.launcher),
               place_.world_size, place_.local_world_size);
    task_.introduce(job_, directory, resumption.lines);
    std::fflush(stdout);
  }

  void tell_restart(EventLog& events, int64_t step) {
    job_.attempt.restarts = store_.most_restarts();
    if (job_.attempt.restarts == 0) return;
    events.add({.generation = job_.attempt.fence.generation(),
                .kind = "restarted",
                .step = step,
                .text = fmt::format("by {}, {} times so far", to_string(place_.launcher),
                                    job_.attempt.restarts)});
  }

  void see() {
    const OpenedRun opened = OpenedRun::from_json(store_.get("run", 0, "open the run"));
    RunDirectory directory = RunDirectory::attach(job_.config, opened.name);
    expect_shared(directory.path(), opened.marker);
    tell_seen();
    job_.attempt.fence = Fence::adopt(directory.path(), opened.generation);
    if (!opened.checkpoint.empty()) {
      job_.resume = directory.path() / kCheckpointsFolder / opened.checkpoint;
    }
    directory_.emplace(std::move(directory));
  }

  void tell_seen() { store_.set(fmt::format("sees/{}", place_.rank), "yes"); }

  void expect_shared(const fs::path& run, const std::string& marker) const {
    const auto last_moment =
        std::chrono::steady_clock::now() +
        std::min<std::chrono::milliseconds>(kStoragePatience, deadline_of(config_) / 2);
    while (text_in_file(run / kMarker) != marker) {
      const AbortNote& note = board_.abort_note();
      if (note.is_raised()) throw CommunicationError(note.reason(), note.fault(), note.rank());
      if (std::chrono::steady_clock::now() > last_moment) {
        throw std::invalid_argument(fmt::format(
            "--storage {}: rank {} on {} does not see what rank 0 has written there; give a folder "
            "that all hosts share, under the same path on each",
            fs::absolute(config_.storage).string(), place_.rank, host_name()));
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  }

  Membership place_;
  const LaunchedTask& task_;
  planner::Config config_;
  SharedRegion region_;
  Board board_;
  RendezvousStore store_;
  const MemoryKillWatch memory_;
  Job job_;
  std::optional<RunDirectory> directory_;
};

}  // namespace

planner::Config config_under_launcher(const planner::Config& config, const Membership& place) {
  planner::Config joined = config;
  const auto refuse = [&](const std::string& what, const std::string& fix) {
    throw std::invalid_argument(fmt::format("{}: this is rank {} of {} started by {}; {}", what,
                                            place.rank, place.world_size, to_string(place.launcher),
                                            fix));
  };
  if (config.workers != 1 && config.workers != place.world_size) {
    refuse(fmt::format("--workers {}", config.workers),
           "leave it out, or start one process without a launcher");
  }
  if (config.solo_rank >= 0) refuse("--solo-rank", "start a solo rank without a launcher");
  joined.workers = place.world_size;
  if (config.communicator == planner::CommunicatorChoice::local) {
    refuse("--communicator local", "these ranks share no memory: leave it out, or give gloo");
  }
  if (config.communicator == planner::CommunicatorChoice::automatic &&
      planner::device_of(config).is_cpu()) {
    joined.communicator = planner::CommunicatorChoice::gloo;
  }
  if (!config.name.empty()) return joined;
  if (place.may_restart) {
    refuse("--name", "give the run a name, so that a restart finds it");
  }
  if (!place.job.empty()) {
    joined.name = fmt::format("{}-{}-{}", fs::path(config.model).stem().string(),
                              to_string(config.strategy), place.job);
  }
  return joined;
}

std::string error_file_json(const std::string& reason, int64_t unix_s) {
  // PyTorch's own file has the timestamp as text, too.
  const nlohmann::ordered_json json = {
      {"message",
       {{"message", reason},
        {"extraInfo", {{"py_callstack", reason}, {"timestamp", std::to_string(unix_s)}}}}}};
  return json.dump();
}

int train_under_launcher(const LaunchedTask& task) {
  // A lost peer is an error to report, not a reason to die. Gloo writes to sockets, so SIGPIPE is
  // ignored.
  std::signal(SIGPIPE, SIG_IGN);
  if (task.place.parent > 0) end_with(task.place.parent);
  try {
    return LaunchedRank(task).run();
  } catch (const std::exception& error) {
    tell_torchrun(task.place, error.what());
    throw;
  }
}

}  // namespace shardlens::runtime
