// Runs a program and returns its output.
#pragma once

#include <string>
#include <vector>

namespace shardlens {

struct ProgramOutput {
  int exit_code = 0;  // 127: it could not be started, or was ended by a signal
  std::string text;   // of stdout
};

/// Runs the command, found by PATH, until it ends; it writes its errors to our stderr. Throws
/// std::runtime_error if no pipe can be made.
ProgramOutput output_of(const std::vector<std::string>& command);

/// Splits a text into its lines, without their ends.
std::vector<std::string> lines_of(const std::string& text);

}  // namespace shardlens
