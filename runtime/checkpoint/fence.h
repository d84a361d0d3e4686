// Keeps the ranks of an earlier attempt from writing into a run. Attempts are numbered by
// generations, and the run's folder names the newest. A rank of an older attempt (stopped over a
// restart and continued, or on a host that was cut off) finds another number there and ends.
//
// [Note: fencing]
// The process that begins a generation first writes its number durably, then removes what the
// previous generation has left unfinished. Unfinished folders have their generation in their name,
// so an old rank cannot write into a newer folder. An old rank reads the number before it
// publishes. If the next generation begins between this read and the rename, either the rename
// still finds the folder, which is whole, or it fails, since the folder is renamed before any file
// in it is removed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace shardlens::runtime {

class Fence {
 public:
  /// Makes a fence that lets all writes pass, for files that only one attempt ever writes.
  Fence() = default;

  /// Begins the next generation of a run, and returns its fence. `run` is the run's folder. Throws
  /// Failure.
  static Fence begin(const std::filesystem::path& run);

  /// Returns the fence of an attempt that another process has begun.
  static Fence adopt(const std::filesystem::path& run, int64_t generation);

  /// Counts from 1; 0 means that there is no run.
  int64_t generation() const { return generation_; }
  /// Returns the ending of names of unfinished folders: "-g3", or "" if there is no generation.
  std::string suffix() const;
  /// Throws Failure, overtaken, if a newer generation has begun.
  void check() const;

 private:
  Fence(std::filesystem::path file, int64_t generation)
      : file_(std::move(file)), generation_(generation) {}

  std::filesystem::path file_;
  int64_t generation_ = 0;
};

}  // namespace shardlens::runtime
