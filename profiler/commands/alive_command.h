// The command `shardlens profile alive`: what is alive at a moment, as a tree.
#pragma once

#include <string>
#include <vector>

namespace shardlens::profiler {

/// Returns the tree as text, as JSON or as folded stacks. Throws std::invalid_argument for wrong
/// usage, and as Reader does.
std::string alive_command(const std::vector<std::string>& arguments);

}  // namespace shardlens::profiler
