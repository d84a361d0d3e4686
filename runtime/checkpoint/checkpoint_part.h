// Writes one rank's part of a set of files, and on rank 0 collects the parts of all ranks.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <vector>

#include "runtime/checkpoint/checkpoint.h"
#include "runtime/checkpoint/receipts.h"

namespace shardlens::runtime {

/// Holds consecutive bytes, and says where in a file they belong.
struct FileRange {
  int file = 0;  // index into FileLayout::files
  int64_t offset_bytes = 0;
  std::span<const std::byte> data;
};

/// Holds one rank's part of a set of files. Everything it refers to must outlive the call.
struct Part {
  const FileLayout& layout;
  std::filesystem::path folder;  // made if it is missing
  int rank = 0;
  std::vector<FileRange> ranges;
  RankProgress progress;
};

/// Writes the part, and on rank 0 also the headers. Returns when everything is on the disk and the
/// receipt exists. Throws std::runtime_error if the disk fails.
void write_part(const Part& part);

struct CollectedParts {
  std::vector<ManifestFile> files;  // of the layout
  std::vector<RankProgress> ranks;
};

/// Collects the receipts of all ranks, and removes them. `name` is the set's name, for errors.
/// Throws std::runtime_error for a rank that left no receipt in time, std::logic_error if the parts
/// do not make up the files.
CollectedParts collect_parts(const FileLayout& layout, const std::filesystem::path& folder,
                             int world_size, const std::string& name, const Patience& patience);

}  // namespace shardlens::runtime
