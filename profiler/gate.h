// `shardlens gate`: whether a change made a program's peak grow, as an exit code for CI and as
// Markdown for those who review it.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "profiler/commands.h"
#include "profiler/report/diff.h"

namespace shardlens::profiler {

/// The recordings of BASE and NEW, compared by rank. 0: no peak, allocated or reserved, grew by
/// more than the limit; 1: one did. Writes the file that --markdown names. Throws as
/// profile_command does.
CommandOutcome gate_command(const std::vector<std::string>& arguments,
                            const std::function<RankReport(const std::string& path)>& analyse);

/// The greatest growth of a peak, allocated or reserved, in percent.
double gated_growth_percent(const RunDiff& diff);

/// For a comment on a change.
std::string gate_markdown(const RunDiff& diff, double limit_percent);

}  // namespace shardlens::profiler
