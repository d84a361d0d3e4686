// What one rank writes of a set of files, and what rank 0 makes of the parts of all.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <vector>

#include "runtime/checkpoint.h"
#include "runtime/receipts.h"

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
