// The directory of one run: it records who may write it, the run's configuration, and its result.
//
//   RUN/config.json  result.json  metrics.jsonl  events.jsonl  logs/rank0.log ...  checkpoints/
//   model/
//
// A live run holds a lock on RUN/.lock; the lock is the kernel's, so a killed run leaves none.
// Refusals come before any file is made or removed.
#pragma once

#include <filesystem>
#include <string>

#include "planner/config/config.h"
#include "runtime/checkpoint/fence.h"

namespace shardlens::runtime {

constexpr const char* kCheckpointsFolder = "checkpoints";
constexpr const char* kModelFolder = "model";

class RunDirectory {
 public:
  /// Makes the directory and takes the lock. If the run is unfinished and has the same
  /// configuration, it only takes the lock. Throws std::invalid_argument if the run of that name is
  /// live, finished or of another configuration, if it is not a run, or if it cannot be written.
  static RunDirectory open(const planner::Config& config);

  /// Returns the directory of a run that another process has opened: takes no lock and makes no
  /// files. `name` is the run's name in its storage.
  static RunDirectory attach(const planner::Config& config, const std::string& name);

  RunDirectory(RunDirectory&& other) noexcept;
  RunDirectory& operator=(RunDirectory&&) = delete;
  ~RunDirectory();

  /// True if open() found an unfinished run, whose files are still untouched.
  bool is_unfinished() const { return is_unfinished_; }
  /// Returns the run's configuration. Throws std::invalid_argument if that is damaged.
  planner::Config config() const;
  /// Lets the run resume after `step` with another configuration, and drops its metrics of later
  /// steps.
  void go_on(const planner::Config& config, int64_t step) const;
  /// Begins the next attempt; ranks of earlier attempts can no longer write. Throws Failure.
  Fence begin_attempt() const { return Fence::begin(path_); }

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path log(int rank) const;
  std::filesystem::path profile(int rank) const;
  /// Returns the id that was set when the run began. No other run has this id, not even one of the
  /// same name.
  std::string id() const;
  /// Returns the file that lists a rank's last actions before an attempt failed.
  std::filesystem::path actions(int rank) const;
  std::filesystem::path events() const { return path_ / "events.jsonl"; }
  std::filesystem::path metrics() const { return path_ / "metrics.jsonl"; }
  std::filesystem::path result() const { return path_ / "result.json"; }

 private:
  RunDirectory(std::filesystem::path path, int lock) : path_(std::move(path)), lock_(lock) {}

  std::filesystem::path path_;
  int lock_;  // file descriptor
  bool is_unfinished_ = false;
};

}  // namespace shardlens::runtime
