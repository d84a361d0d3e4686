// What one rank writes of a set of files, and how rank 0 learns that all have written theirs.
//
// Ranks meet in the folder alone: each leaves a receipt, "part-3.json", when its bytes are on the
// disk; rank 0 waits for all of them. No collective is needed, so a thread beside the training can
// do this. Receipts say where each range lies and what its checksum is: rank 0 puts the checksums
// of files together from them, and finds out if a byte was left out or written twice.
#pragma once

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <span>
#include <vector>

#include "runtime/checkpoint.h"

namespace shardlens::runtime {

/// A run of bytes of one file.
struct FileRange {
  int file = 0;  // index into FileLayout::files
  int64_t offset_bytes = 0;
  std::span<const std::byte> data;
};

/// All that is referred to must outlive the call.
struct Part {
  const FileLayout& layout;
  std::filesystem::path folder;  // made where it is missing
  int rank = 0;
  std::vector<FileRange> ranges;
  RankProgress progress;
};

/// Returns when all is on the disk, and the receipt there; rank 0 writes the headers, too. Throws
/// std::runtime_error where the disk fails.
void write_part(const Part& part);

/// How long to wait for the others.
struct Patience {
  std::chrono::nanoseconds deadline{};    // for each of them
  std::function<bool()> is_stopped = {};  // the group ends: nobody need be waited for; may be empty
};

struct CollectedParts {
  std::vector<ManifestFile> files;  // of the layout
  std::vector<RankProgress> ranks;
};

/// Takes the receipts of all ranks, and removes them. `name`: of what is written, for errors.
/// Throws std::runtime_error for a rank that left none in time, std::logic_error where the parts
/// do not make up the files.
CollectedParts collect_parts(const FileLayout& layout, const std::filesystem::path& folder,
                             int world_size, const std::string& name, const Patience& patience);

}  // namespace shardlens::runtime
