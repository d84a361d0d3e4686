// Whether files are as they were written, by the manifest.json beside them: asked of checkpoints
// that are gone on from, exported or verified, and of weights wherever they come in.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "runtime/checkpoint.h"

namespace shardlens::runtime {

constexpr const char* kManifest = "manifest.json";

/// What is read of a checkpoint's tensors; all else is always read.
enum class Look { every_byte, sizes };

/// Of a folder that has a manifest. Empty: it is whole, as far as was looked; else what is wrong.
std::string fault_of(const std::filesystem::path& folder, Look look = Look::every_byte);

/// Throws std::runtime_error saying what is wrong where the folder has none, or a damaged one.
Manifest read_manifest(const std::filesystem::path& folder);

/// Size and checksum of a file, read from its first byte to its last. Throws std::runtime_error.
ManifestFile measure_file(const std::filesystem::path& path);

/// Throws std::runtime_error where it is no file that can be read.
int64_t size_of(const std::filesystem::path& path);

/// Whether a file of this name, in a folder, holds weights; an optimizer's moments are none.
bool holds_weights(std::string_view name);

/// Reads every byte of weights that come in: a file, or those of a folder that hold weights. Throws
/// std::invalid_argument, which names the file and its bytes, where one is not as the manifest
/// beside it says, or is missing. Returns "" where all are as they were written; else one line
/// that says why nobody knows it. Weights that are not there are left to whoever reads them.
std::string why_unverified(const std::filesystem::path& weights);

}  // namespace shardlens::runtime
