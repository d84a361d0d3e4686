// Says what to do after a program was recorded: what to change in it (advice.h), how to look at the
// recording, and how to guard it.
#pragma once

#include <string>
#include <vector>

#include "profiler/record/judged_rank.h"

namespace shardlens::profiler {

/// Returns the lines under "next" for the recordings in the folder `out`, which has at least one.
std::string next_steps(const std::string& out, const std::vector<JudgedRank>& ranks);

}  // namespace shardlens::profiler
