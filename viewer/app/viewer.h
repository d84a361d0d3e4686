// The viewer as a program: takes arguments and returns an exit code.
#pragma once

#include <string>
#include <vector>

namespace shardlens::viewer {

/// Runs the viewer; `arguments` lack the program's name. Prints its messages. The exit code is 0 if
/// all went well, 1 if something could not be opened or drawn (the rest is shown nevertheless).
/// Throws std::invalid_argument for wrong usage and std::runtime_error if nothing can be shown.
int run_viewer(const std::vector<std::string>& arguments);

}  // namespace shardlens::viewer
