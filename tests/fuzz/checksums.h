// Makes a damaged file's checksums right again: behind a wrong one a mutation is never read.
#pragma once

#include <string>

namespace shardlens::fuzz {

/// Those of a recording's beginning and of its blocks (profiler/FORMAT.md).
void repair_recording(std::string& file);
/// That of the beginning of a file of open blocks, and makes it one of the version whose events had
/// no checksums; the layout is the same.
void repair_open_blocks(std::string& file);
/// Those of the entries of an archive as torch.save writes it.
void repair_archive(std::string& file);

}  // namespace shardlens::fuzz
