// The commands of `shardlens profile`, without a process around them: arguments in, what is to be
// printed and the exit code out.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "profiler/reader.h"
#include "profiler/report/report.h"

namespace shardlens::profiler {

struct CommandOutcome {
  int exit_code = 0;
  std::string out;
  std::string error;  // for stderr, lines
};

/// Where commands get recordings from. Both throw as Reader does.
struct Recordings {
  std::function<RankReport(const std::string& path)> analyse;
  std::function<FileReport(const std::string& path)> check;
};

/// `arguments` without the program's name. 0 done, 1 a limit was passed or a file is damaged.
/// Throws std::invalid_argument for wrong usage and std::runtime_error where a file cannot be read.
CommandOutcome profile_command(const std::vector<std::string>& arguments,
                               const Recordings& recordings);

}  // namespace shardlens::profiler
