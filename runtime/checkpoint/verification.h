// Checks files against the manifest.json beside them: checkpoints that are resumed, exported or
// verified, and weights wherever they are read.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "base/fault.h"
#include "runtime/checkpoint/checkpoint.h"

namespace shardlens::runtime {

constexpr const char* kManifest = "manifest.json";

/// Says how much of a checkpoint's tensors is read. All other files are always read.
enum class Look { every_byte, sizes };

/// Returns what is wrong with a folder that has a manifest; nothing if it is whole as far as `look`
/// checks.
Problem fault_of(const std::filesystem::path& folder, Look look = Look::every_byte);

/// Returns the manifest of a folder. Throws std::runtime_error if the manifest is missing or
/// damaged.
Manifest read_manifest(const std::filesystem::path& folder);

/// Returns a file's size in bytes. Throws std::runtime_error if the file cannot be read.
int64_t size_of(const std::filesystem::path& path);

/// True if a file of this name holds weights. A file of an optimizer's moments does not.
bool holds_weights(std::string_view name);

/// Reads every byte of the user's weights: a file, or those files of a folder that hold weights.
/// Throws std::invalid_argument, which names the file and its bytes, if one is not as the manifest
/// beside it says, or is missing. Returns nothing if all are as they were written, else one line
/// that says why they could not be verified. If no weights exist, their reader reports that.
Problem why_unverified(const std::filesystem::path& weights);

}  // namespace shardlens::runtime
