// The flags of a command line as a configuration.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "planner/config/config.h"

namespace shardlens::planner {

struct Arguments {
  Config config;
  std::vector<std::string> notes;  // how another program's files were read, lines to print
  bool help = false;
};

/// Parses the flags after the command's name; --config FILE is read first, and flags override it.
/// The file may be another program's (planner/config/foreign/): then it matters whether a launcher
/// has started this process as one of `launched` ranks; 0: none has. Throws std::invalid_argument.
Arguments parse_arguments(const std::vector<std::string>& arguments, int64_t launched = 0);

std::string help_text(std::string_view command);

}  // namespace shardlens::planner
