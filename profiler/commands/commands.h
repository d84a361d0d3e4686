// The commands of `shardlens profile`, without a process around them: each takes arguments and
// returns the text to print and the exit code.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "profiler/commands/exchange_commands.h"
#include "profiler/file/reader.h"
#include "profiler/report/report.h"

namespace shardlens::profiler {

struct CommandOutcome {
  int exit_code = 0;
  std::string out;
  std::string error;  // for stderr, in whole lines
};

/// Asks how long a step takes.
struct TimeRequest {
  std::string gpu{};          // empty: the recorded one
  double host = 1;            // the target host's time, as a multiple of the recording host's
  std::string calibration{};  // a file; empty: the model's own times
  bool of_events = false;     // when each event happens, in place of a step's time
  bool json = false;
};

/// The functions by which commands read recordings and write pages. All throw as Reader does.
struct Recordings {
  std::function<RankReport(const std::string& path)> analyse;
  std::function<FileReport(const std::string& path)> check;
  Exporters exporters = {};
  std::function<std::string(const std::string& path, const TimeRequest& request)> time = {};
  /// The same for the ranks of a run, together.
  std::function<std::string(const std::vector<std::string>& paths, const TimeRequest& request)>
      world_time = {};
  /// True if a recording has a trace of work; empty: none has.
  std::function<bool(const std::string& path)> has_work = {};
};

/// Runs the command in `arguments`, which do not include the program's name. The exit code is 0 if
/// it succeeded, 1 if a limit was exceeded or a file is damaged. Throws std::invalid_argument for
/// wrong usage and std::runtime_error if a file cannot be read.
CommandOutcome profile_command(const std::vector<std::string>& arguments,
                               const Recordings& recordings);

}  // namespace shardlens::profiler
