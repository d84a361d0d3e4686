// `shardlens gate` tells whether a change made a program's peak grow: by its exit code for CI, and
// in Markdown for the reviewers of the change.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "profiler/commands/commands.h"
#include "profiler/compare/diff.h"

namespace shardlens::profiler {

/// Compares the recordings of BASE and NEW by rank. The exit code is 0 if no peak, allocated or
/// reserved, grew by more than the limit, and 1 if one did. Writes the file that --markdown names.
/// Throws as profile_command does.
CommandOutcome gate_command(const std::vector<std::string>& arguments,
                            const std::function<RankReport(const std::string& path)>& analyse);

/// Returns the comparison as Markdown, for a comment on the change.
std::string gate_markdown(const RunDiff& diff, double limit_percent);

}  // namespace shardlens::profiler
