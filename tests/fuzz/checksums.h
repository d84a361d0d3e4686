// Corrects a damaged file's checksums: a mutation behind a wrong checksum is never read.
#pragma once

#include <string>

namespace shardlens::fuzz {

/// Corrects those of a recording's beginning and of its blocks (profiler/FORMAT.md).
void repair_recording(std::string& file);
/// Corrects that of the beginning of a file of open blocks, and makes the file one of the version
/// whose events had no checksums; the layout is the same.
void repair_open_blocks(std::string& file);
/// Corrects those of the entries of an archive as torch.save writes it.
void repair_archive(std::string& file);

}  // namespace shardlens::fuzz
