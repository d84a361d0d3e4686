// What the viewer shows, in words and numbers, without any window: for those who cannot see the
// picture, for scripts, and to be kept beside a run.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "viewer/model/run.h"
#include "viewer/model/warp.h"

namespace shardlens::viewer {

enum class ReportFormat { text, json, csv, html };

/// By the end of a file's name. Throws std::invalid_argument for another than .txt, .json, .csv
/// and .html.
ReportFormat report_format(const std::string& path);

/// A part of x.
struct ReportRange {
  Alignment alignment{};
  Range x;
};

/// Every strategy at its own peak, in a range at the peak within it; the one with the index
/// `baseline` is what the others are compared with. There is at least one run.
std::string comparison_report(const std::vector<Run>& runs, size_t baseline, ReportFormat format,
                              const std::optional<ReportRange>& range = std::nullopt);

}  // namespace shardlens::viewer
