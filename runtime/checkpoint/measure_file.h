// Measures the size and checksum of a file, which verify a checkpoint's files.
#pragma once

#include <filesystem>

#include "runtime/checkpoint/checkpoint.h"

namespace shardlens::runtime {

/// Returns size and checksum of a file, read from its first byte to its last. Throws
/// std::runtime_error.
ManifestFile measure_file(const std::filesystem::path& path);

}  // namespace shardlens::runtime
