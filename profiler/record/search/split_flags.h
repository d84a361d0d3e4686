// Separates a command's own flags from those of `shardlens record`, which it takes, too.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace shardlens::profiler {

/// Parses the flags of `app` in `arguments`, up to "--". Returns the others, with the command
/// behind
/// "--". Throws std::invalid_argument.
std::vector<std::string> parse_own_flags(CLI::App& app, const std::vector<std::string>& arguments);

}  // namespace shardlens::profiler
