// The viewer as a program: arguments in, exit code out.
#pragma once

#include <string>
#include <vector>

namespace shardlens::viewer {

/// `arguments` without the program's name. Prints what it has to say. 0 done; 1 something could
/// not be opened or drawn (what could is there all the same). Throws std::invalid_argument for
/// wrong usage and std::runtime_error where nothing can be done.
int run_viewer(const std::vector<std::string>& arguments);

}  // namespace shardlens::viewer
