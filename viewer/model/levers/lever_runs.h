// Records programs with levers, one after the other, each in a process of its own, while the viewer
// goes on.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "viewer/model/levers/program_levers.h"
#include "viewer/model/run.h"

namespace shardlens::viewer {

/// All calls must come from one thread. Programs that run are stopped when this is destroyed.
class LeverRuns {
 public:
  using Levers = std::vector<profiler::Lever>;

  /// `record` is the file of `shardlens-record`. Lanes show `space`, as in open_runs.
  LeverRuns(std::string record, std::string cache_folder, std::optional<profiler::Space> space);

  /// Reads what is known of the recording, and later calls of `levers` return it.
  void look_at(const std::string& recording);
  /// Records the program with these levers, once those before it have ended.
  void run(const std::string& recording, const Levers& levers);
  /// Stops the run if it is under way, or forgets it.
  void stop(const std::string& recording, const Levers& levers);
  void stop_all();
  /// Lets the lanes of what ends from now on show this memory.
  void show(std::optional<profiler::Space> space);
  /// Reads a variant that was recorded before, to be shown.
  void open(const std::string& folder);

  /// Returns what is known of the recording; nothing if that has not been read yet.
  std::optional<ProgramLevers> levers(const std::string& recording) const;
  /// Returns the runs that were recorded or opened since the last call.
  std::vector<Run> take_runs();
  /// Returns one line for each program that was run since the last call and left no peak.
  std::vector<std::string> take_messages();
  /// Returns a number that changes with all that the calls above return.
  uint64_t version() const;
  bool is_busy() const;
  /// Waits until nothing is left to do, `most` at most.
  void wait(std::chrono::milliseconds most);

 private:
  using Clock = std::chrono::steady_clock;

  /// A piece of work: to read a recording, to record with levers, or to open a folder.
  struct Job {
    std::string recording;
    std::optional<Levers> levers{};
    std::string folder{};
  };
  struct Current {
    Job job;
    Clock::time_point since;
    bool is_stopped = false;
  };

  void add(Job job);
  void work(const std::stop_token& stop);
  void do_quickly(const Job& job);
  void do_what_is_quick();
  void look(const Job& job);
  void record(const Job& job, const std::stop_token& stop);
  LeverRow recorded_row(const Job& job, const ProgramLevers& levers, const std::stop_token& stop);
  void open_folder(const std::string& folder);
  bool is_unwanted(const std::stop_token& stop) const;
  void keep(const Job& job, const LeverRow& row);

  const std::string record_;
  const std::string cache_folder_;
  mutable std::mutex mutex_;
  std::optional<profiler::Space> space_;
  std::condition_variable_any changed_;
  std::deque<Job> waiting_;
  std::optional<Current> current_;
  std::map<std::string, ProgramLevers> levers_;         // by recording
  std::map<std::string, std::vector<LeverRow>> ended_;  // of this session, without a recording
  std::vector<Run> runs_;
  std::vector<std::string> messages_;
  double last_seconds_ = 0;  // that the last program ran
  uint64_t version_ = 0;
  std::jthread thread_;  // last: it ends first
};

}  // namespace shardlens::viewer
