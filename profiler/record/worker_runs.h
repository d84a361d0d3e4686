// Runs programs on the workers of an executor, which belongs to the Python process that has started
// this one (commands/wheel/shardlens/_executor.py): Ray, Slurm, or other processes of this machine.
//
// For each program that process is sent a line with the words of `shardlens record`. A worker runs
// them and keeps how the program ended beside its recording, where this process reads it. So
// workers need the same paths, and decide nothing: what is run, and what it says, is up to this
// process.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/process/line_socket.h"
#include "profiler/record/record_options.h"
#include "profiler/record/recorded_run.h"

namespace shardlens::profiler {

class Workers {
 public:
  /// Returns those of the process that has started this one, or nothing: it has none.
  static std::optional<Workers> of_parent();

  /// Runs commands as run_programs() does, all at once: the executor makes them wait. A command
  /// that no worker could run ends as one that failed. Returns false if it was interrupted.
  bool run(const std::vector<RecordOptions>& all, const ProgramListener& ended);

 private:
  explicit Workers(LineSocket parent) : parent_(std::move(parent)) {}
  bool ask_for(const std::vector<RecordOptions>& all);

  LineSocket parent_;
};

/// Writes how a command ended to a file in the run's folder, if this process runs it as a worker.
void keep_run_of_worker(const RecordOptions& options, const RecordedRun& run);

}  // namespace shardlens::profiler
