// Separates a command's own flags from those of `shardlens record`, which it takes, too.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "profiler/record/record_options.h"

namespace shardlens::profiler {

/// Parses the flags of `app` in `arguments`, up to "--". Returns the others, with "--" and the
/// command behind it. Throws std::invalid_argument.
std::vector<std::string> parse_own_flags(CLI::App& app, const std::vector<std::string>& arguments);

/// Parses --by, whose words are "cost", the default, and "time". Throws std::invalid_argument.
bool parse_by_time(const std::string& text);

/// Parses flags of `shardlens record` for a command of ours that runs one rank many times, on a
/// simulated GPU. Throws std::invalid_argument.
RecordOptions parse_simulated(const char* command, const std::vector<std::string>& flags);

}  // namespace shardlens::profiler
