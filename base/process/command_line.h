// Parses flags with CLI11, for all commands of `shardlens profile`, and finds the recordings that a
// name on the command line stands for.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace CLI {
class App;
class Validator;
}  // namespace CLI

namespace shardlens {

/// Parses a program's flags; `arguments` lack the program's name. Returns the help text if the user
/// asked for it, else an empty text. Throws std::invalid_argument for each of CLI11's errors, since
/// those are the user's.
std::string parse_program(CLI::App& app, const std::vector<std::string>& arguments);

/// Parses one command's flags as parse_program does; help is not a flag here, since the program has
/// it.
void parse_flags(CLI::App& app, const std::vector<std::string>& arguments);

/// Returns a check that a flag's value is a number above 0. The error of CLI11's PositiveNumber has
/// the largest double in full, with 309 digits.
CLI::Validator positive_number();

/// Parses "2%" or "2" and returns the number, in percent. Throws std::invalid_argument, which names
/// the flag, for anything else, and for negative numbers.
double parse_percent(std::string_view flag, std::string_view text);

/// Returns the recordings of a RUN in the order of their ranks, or the FILE itself. If `rank` is
/// given, only the recordings of that rank of a run are returned; the file names (rankR.slp) tell
/// the rank. Throws std::invalid_argument if there is no such file, or no recording in the run.
std::vector<std::string> recordings_of(const std::string& run_or_file,
                                       std::optional<int32_t> rank = std::nullopt);

/// Returns the path, or with "-2", "-3" and so on behind it the first that does not exist: two runs
/// may begin in one second.
std::string free_path(const std::string& path);

/// Returns "runs/train-20261127-203000", where the recording of a command goes if nobody says
/// where: its last script gives the name, or else its first word. The folder does not exist.
std::string default_folder(const std::vector<std::string>& command);

/// Returns a word quoted for a shell, or the word itself if a shell reads it as it is.
std::string shell_word(const std::string& word);

}  // namespace shardlens
