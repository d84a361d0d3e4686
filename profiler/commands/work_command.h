// The command `shardlens profile work`: what a program asked of its GPU, from the trace of work of
// a recording.
#pragma once

#include <string>
#include <vector>

namespace shardlens::profiler {

/// Returns the counts of each step and the pieces of work that were asked for most, as text, or the
/// whole trace as JSON. Throws std::invalid_argument for wrong usage or a recording without a
/// trace, and as Reader does.
std::string work_command(const std::vector<std::string>& arguments);

}  // namespace shardlens::profiler
