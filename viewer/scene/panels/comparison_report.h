// Writes what the viewer shows in words and numbers, without a window: for users who cannot see the
// picture, for scripts, and to keep with a run.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "viewer/model/run.h"
#include "viewer/model/warp.h"

namespace shardlens::viewer {

enum class ReportFormat { text, json, csv };

/// Returns the format by a file name's extension. Throws std::invalid_argument for any but .txt,
/// .json and .csv.
ReportFormat report_format(const std::string& path);

/// A part of the x axis.
struct ReportRange {
  Alignment alignment{};
  Range x;
};

/// Reports every run at its own peak or, if `range` is given, at its peak within that range. The
/// others are compared with the run of index `baseline` or, if they show other memory, with the
/// first of the earlier baselines that shows the same. `runs` must not be empty.
std::string comparison_report(const std::vector<Run>& runs, size_t baseline, ReportFormat format,
                              const std::optional<ReportRange>& range = std::nullopt,
                              const std::vector<size_t>& earlier_baselines = {});

}  // namespace shardlens::viewer
