// Packs a run into one file that is easy to copy home: its configuration, result, metrics, events,
// logs and recordings, but neither checkpoints nor model. The file is a tar archive compressed by
// zstd, which `tar --zstd -xf` unpacks into a folder with the run's name; every command that reads
// a run reads that folder, too.
//
// Links are not followed out of the run: a link to a file of the run is stored as the file it leads
// to; any other link is left out and named. Every stored file has its name within the run.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

namespace shardlens::profiler {

struct Bundle {
  std::filesystem::path file;
  int64_t files = 0;                              // in the bundle
  int64_t input_bytes = 0;                        // of these files, uncompressed
  int64_t bytes = 0;                              // of the bundle
  std::vector<std::filesystem::path> left_out{};  // links out of the run, pipes and such
};

/// Bundles the run's files into `file`; an empty `file` means RUN.tar.zst in the working directory.
/// A file of a live run that grows meanwhile is stored with the length that it had when it was
/// opened. Throws std::invalid_argument if `run` is not a run or the file already exists, and
/// std::runtime_error if something cannot be read or written; no file is left behind then.
Bundle bundle_run(const std::filesystem::path& run, const std::filesystem::path& file);

}  // namespace shardlens::profiler
