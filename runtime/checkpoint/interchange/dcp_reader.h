// Reads a folder that torch.distributed.checkpoint has written: `.metadata`, a pickle that says
// where each piece of each tensor is, and `*.distcp`, in which each piece is a torch.save archive.
#pragma once

#include <filesystem>

#include "runtime/checkpoint/interchange/saved_state.h"

namespace shardlens::runtime {

bool is_dcp_folder(const std::filesystem::path& folder);

/// Returns what was saved in the folder. Throws std::runtime_error that says what is damaged,
/// missing or refused.
SavedState read_dcp(const std::filesystem::path& folder);

}  // namespace shardlens::runtime
