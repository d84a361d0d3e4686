// The directory of one run: who may write it, what it was configured with, what came of it.
//
//   RUN/config.json  result.json  metrics.jsonl  events.jsonl  logs/rank0.log ...  checkpoints/
//   model/
//
// A live run holds a lock on RUN/.lock; the lock is the kernel's, so a killed run leaves none.
// Whatever is refused is refused before anything is made or removed.
#pragma once

#include <filesystem>
#include <string>

#include "planner/strategy.h"
#include "runtime/fence.h"

namespace shardlens::runtime {

constexpr const char* kCheckpointsFolder = "checkpoints";
constexpr const char* kModelFolder = "model";

class RunDirectory {
 public:
  /// Makes the directory and takes the lock; of an unfinished run of the same configuration it
  /// takes the lock alone. Throws std::invalid_argument where the name is live, finished or of
  /// another configuration, is no run, or cannot be written.
  static RunDirectory open(const planner::Config& config);

  /// Of another process, which has opened it: takes no lock and makes nothing. `name` is the run's
  /// in its storage.
  static RunDirectory attach(const planner::Config& config, const std::string& name);

  RunDirectory(RunDirectory&& other) noexcept;
  RunDirectory& operator=(RunDirectory&&) = delete;
  ~RunDirectory();

  /// An unfinished run, of which nothing was touched yet.
  bool is_unfinished() const { return is_unfinished_; }
  /// What it was configured with. Throws std::invalid_argument where that is damaged.
  planner::Config config() const;
  /// Lets it go on after `step` with another configuration: what it said of later steps is dropped.
  void go_on(const planner::Config& config, int64_t step) const;
  /// The attempt that now begins; ranks of those before can write no more. Throws Failure.
  Fence begin_attempt() const { return Fence::begin(path_); }

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path log(int rank) const;
  std::filesystem::path profile(int rank) const;
  /// Set when the run was begun; no other run has it, not one of its name either.
  std::string id() const;
  /// What a rank did last, where an attempt has failed.
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
