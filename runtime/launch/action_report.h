// Writes a rank's last actions into a file for people: one line per action, the oldest first.
#pragma once

#include <filesystem>

#include "runtime/comm/board/board.h"
#include "runtime/train/job.h"

namespace shardlens::runtime {

/// Replaces the file at `path`. Errors of the disk are ignored, because the run has failed already.
void write_actions(const Job& job, const Board& board, int rank, const std::filesystem::path& path);

}  // namespace shardlens::runtime
