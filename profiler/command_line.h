// Flags as CLI11 takes them, and what the commands of `shardlens profile` share: the recordings
// that a name stands for.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace CLI {
class App;
}

namespace shardlens::profiler {

/// Flags of a program, without its name. Returns the help where it is asked for, else nothing.
/// CLI11's errors are the user's: throws std::invalid_argument.
std::string parse_program(CLI::App& app, const std::vector<std::string>& arguments);

/// The same of one command, whose help is its program's.
void parse_flags(CLI::App& app, const std::vector<std::string>& arguments);

/// "2%" or "2", in percent. Throws std::invalid_argument, which names the flag.
double parse_percent(std::string_view flag, std::string_view text);

/// The recordings of a RUN, by rank, or the FILE itself. Of a run only those of `rank`, where it is
/// given, by the names of the files. Throws std::invalid_argument where there is no such file, or
/// no recording in the run.
std::vector<std::string> recordings_of(const std::string& run_or_file,
                                       std::optional<int32_t> rank = std::nullopt);

}  // namespace shardlens::profiler
