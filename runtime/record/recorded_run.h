// Runs a command so that the PyTorch program in it records itself.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "runtime/record/record_options.h"
#include "runtime/record/recorder_files.h"

namespace shardlens::runtime {

struct RecordedRun {
  int exit_code = 0;  // of the command; 128 and more: the signal that ended it
  std::string ended;  // how, where it did not end by itself; empty: it did
  std::vector<std::filesystem::path> recordings;  // rankR.slp, by rank
};

/// Waits until the command ends. Ctrl-C and SIGTERM go to the command, so that its recordings are
/// closed and can be reported. Throws std::runtime_error where it cannot be started.
RecordedRun run_recorded(const RecordOptions& options, const RecordFiles& files);

}  // namespace shardlens::runtime
