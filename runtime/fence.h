// Keeps the ranks of an earlier attempt from writing into a run. Attempts are numbered, by
// generations, and the run's folder names the newest; a rank of an older one (stopped over a
// restart and continued, or on a host that was cut off) finds another number there and gives up.
//
// [Note: fencing]
// Whoever begins a generation writes its number durably first, then removes what the one before has
// left unfinished. Unfinished folders bear their generation in their name, so an old rank cannot
// write into a new one's. It looks at the number before it publishes; should the next generation
// begin between this look and the rename, either the rename still finds the folder, which is whole,
// or it fails, since the folder is gone.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace shardlens::runtime {

class Fence {
 public:
  /// Of files that only one attempt ever writes: lets everything pass.
  Fence() = default;

  /// Makes the next generation of a run that one. `run`: its folder. Throws Failure.
  static Fence begin(const std::filesystem::path& run);

  /// Of an attempt that another process has begun.
  static Fence of(const std::filesystem::path& run, int64_t generation);

  /// From 1 on; 0: of no run.
  int64_t generation() const { return generation_; }
  /// What names of unfinished folders end with: "-g3"; empty where there is no generation.
  std::string suffix() const;
  /// Throws Failure, overtaken, where a newer generation has begun.
  void check() const;

 private:
  Fence(std::filesystem::path file, int64_t generation)
      : file_(std::move(file)), generation_(generation) {}

  std::filesystem::path file_;
  int64_t generation_ = 0;
};

}  // namespace shardlens::runtime
