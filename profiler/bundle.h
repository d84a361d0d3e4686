// One file of a run, to copy home: its configuration, result, metrics, events, logs and recordings,
// but neither checkpoints nor model. A tar archive under zstd, which `tar --zstd -xf` unpacks into
// a folder of the run's name; what reads the run reads that folder.
//
// Links are not followed out of the run: one to a file of the run is stored as what it leads to,
// any other is left out and named. What is stored has its name within the run.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

namespace shardlens::profiler {

struct Bundle {
  std::filesystem::path file;
  int64_t files = 0;                              // in it
  int64_t input_bytes = 0;                        // of them
  int64_t bytes = 0;                              // of the bundle
  std::vector<std::filesystem::path> left_out{};  // from the run: links out of it, pipes and such
};

/// An empty `file` is RUN.tar.zst in the working directory. Files that grow meanwhile, of a run
/// that is live, are taken as long as they were. Throws std::invalid_argument where `run` is no run
/// or the file is there already, std::runtime_error where something cannot be read or written;
/// nothing is left behind then.
Bundle bundle_run(const std::filesystem::path& run, const std::filesystem::path& file);

}  // namespace shardlens::profiler
