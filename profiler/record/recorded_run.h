// Runs a command so that the PyTorch program in it records itself.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "profiler/record/accounts.h"
#include "profiler/record/python_program.h"
#include "profiler/record/record_options.h"
#include "profiler/record/recorder_files.h"
#include "profiler/record/warm_python.h"

namespace shardlens::profiler {

struct RecordedRun {
  CommandEnd end;
  std::vector<std::filesystem::path> recordings;  // rankR.slp, by rank
  Accounts accounts;                              // of its Python processes
  int64_t host_bytes = 0;                         // the peak of the largest process
  pid_t process = 0;                              // that was started
  bool was_forked = false;                        // from a process that has imported before
};

/// Runs a command, once or as several ranks. Ctrl-C and SIGTERM go to the command, so that its
/// recordings are closed and can be reported. Objects that ranks have sent each other are kept for
/// later ranks while this lives.
class RecordedRuns {
 public:
  using EndListener = std::function<void(int rank, const RecordedRun& run)>;

  /// The arguments must outlive it. At the end the folders that it made are removed if they are
  /// empty.
  RecordedRuns(const RecordOptions& options, const PythonProgram& program,
               const RecordFiles& files);
  ~RecordedRuns();
  RecordedRuns(const RecordedRuns&) = delete;
  RecordedRuns& operator=(const RecordedRuns&) = delete;

  /// Runs the command and waits until it ends. Throws std::runtime_error if it cannot be started.
  RecordedRun run();

  /// Runs the command as each of these ranks, up to `jobs` at once; the output of rank R goes to
  /// logs/rankR.log of the run's folder. Calls `ended` after each. Returns false if it was
  /// interrupted: it starts no more ranks then.
  bool run_as(const std::vector<int>& ranks, int jobs, const EndListener& ended);

 private:
  const RecordOptions& options_;
  const PythonProgram& program_;
  const RecordFiles& files_;
  const bool had_folder_;
};

/// Returns how many processes as large as the largest one of a run fit this host.
/// Where the host's own time is measured, half as many, since two threads of one core share its
/// units.
int jobs_for(int64_t host_bytes, bool measures_host);

/// Starts a process that has imported what the program of `options` has told of its imports.
std::unique_ptr<WarmPython> warm_up(const RecordOptions& options, const std::string& imports,
                                    const PythonProgram& program, const RecordFiles& files);

using ProgramListener = std::function<void(const RecordOptions& options, const RecordedRun& run)>;

/// Runs commands that have nothing to do with each other, each into its own folder, up to `jobs` at
/// once, and calls `ended` after each. They are forked from `warm` where that suits, if it is not
/// null. Returns false if it was interrupted: it starts no more then.
bool run_programs(const std::vector<RecordOptions>& all, const PythonProgram& program,
                  const RecordFiles& files, int jobs, WarmPython* warm,
                  const ProgramListener& ended);

}  // namespace shardlens::profiler
