// The directory of one run: who may write it, what it was configured with, what came of it.
//
//   RUN/config.json  result.json  metrics.jsonl  logs/rank0.log ...
//
// A live run holds a lock on RUN/.lock; the lock is the kernel's, so a killed run leaves none.
// Whatever is refused is refused before anything is made or removed.
#pragma once

#include <filesystem>
#include <string>

#include "planner/strategy.h"

namespace shardlens::runtime {

class RunDirectory {
 public:
  /// Makes the directory and takes the lock. Throws std::invalid_argument where the name is live,
  /// finished, unfinished or of another configuration, is no run, or cannot be written.
  static RunDirectory open(const planner::Config& config);

  RunDirectory(RunDirectory&& other) noexcept;
  RunDirectory& operator=(RunDirectory&&) = delete;
  ~RunDirectory();

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path log(int rank) const;
  std::filesystem::path profile(int rank) const;
  std::filesystem::path metrics() const { return path_ / "metrics.jsonl"; }
  std::filesystem::path result() const { return path_ / "result.json"; }

 private:
  RunDirectory(std::filesystem::path path, int lock) : path_(std::move(path)), lock_(lock) {}

  std::filesystem::path path_;
  int lock_;  // file descriptor
};

/// Writes under a temporary name, syncs and renames. Throws std::runtime_error.
void write_file(const std::filesystem::path& path, const std::string& text);

}  // namespace shardlens::runtime
