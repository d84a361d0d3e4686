// Implements `shardlens checkpoint`: reports whether checkpoints on the disk are whole and what
// they hold, and converts them to PyTorch's formats and back.
#pragma once

#include <string>
#include <vector>

namespace shardlens::runtime {

struct CheckpointOutcome {
  std::string out;
  int exit_code = 0;  // 1: something is damaged
};

/// Runs `shardlens checkpoint` with its arguments: verify DIR, inspect DIR [--json],
/// export DIR with what to write, import SOURCE. DIR is a checkpoint, a run, or a run's folder of
/// checkpoints or model. Throws std::invalid_argument for wrong use, std::runtime_error for what
/// cannot be read or written.
CheckpointOutcome checkpoint_command(const std::vector<std::string>& arguments);

}  // namespace shardlens::runtime
