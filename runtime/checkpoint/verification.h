// Checks files against the manifest.json beside them: checkpoints that are gone on from, exported
// or verified, and weights wherever they come in.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "base/fault.h"
#include "runtime/checkpoint/checkpoint.h"

namespace shardlens::runtime {

constexpr const char* kManifest = "manifest.json";

/// Says what is read of a checkpoint's tensors. All other files are always read.
enum class Look { every_byte, sizes };

/// Returns what is wrong with a folder that has a manifest, or nothing if it is whole as far as
/// `look` goes.
Problem fault_of(const std::filesystem::path& folder, Look look = Look::every_byte);

/// Returns the manifest of a folder. Throws std::runtime_error that says what is wrong if it has
/// none, or a damaged one.
Manifest read_manifest(const std::filesystem::path& folder);

/// Returns a file's size in bytes. Throws std::runtime_error if it is no file that can be read.
int64_t size_of(const std::filesystem::path& path);

/// True if a file of this name, in a folder, holds weights. A file of an optimizer's moments does
/// not.
bool holds_weights(std::string_view name);

/// Reads every byte of weights that come in: a file, or those files of a folder that hold weights.
/// Throws std::invalid_argument, which names the file and its bytes, if one is not as the manifest
/// beside it says, or is missing. Returns nothing if all are as they were written, else one line
/// that says why they could not be verified. Weights that do not exist are left to whoever reads
/// them.
Problem why_unverified(const std::filesystem::path& weights);

}  // namespace shardlens::runtime
