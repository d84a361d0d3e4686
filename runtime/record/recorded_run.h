// Runs a command so that the PyTorch program in it records itself.
#pragma once

#include <filesystem>
#include <vector>

#include "runtime/record/accounts.h"
#include "runtime/record/python_program.h"
#include "runtime/record/record_options.h"
#include "runtime/record/recorder_files.h"

namespace shardlens::runtime {

struct RecordedRun {
  CommandEnd end;
  std::vector<std::filesystem::path> recordings;  // rankR.slp, by rank
  Accounts accounts;                              // of its Python processes
};

/// Runs the command, and waits until it ends. Ctrl-C and SIGTERM go to the command, so that its
/// recordings are closed and can be reported. Throws std::runtime_error if it cannot be started.
RecordedRun run_recorded(const RecordOptions& options, const PythonProgram& program,
                         const RecordFiles& files);

}  // namespace shardlens::runtime
