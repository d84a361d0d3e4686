// What the viewer shows, in words and numbers, without any window: for those who cannot see the
// picture, for scripts, and to be kept beside a run.
#pragma once

#include <string>
#include <vector>

#include "viewer/model/run.h"

namespace shardlens::viewer {

enum class ReportFormat { text, json, csv, html };

/// By the end of a file's name. Throws std::invalid_argument for another than .txt, .json, .csv
/// and .html.
ReportFormat report_format(const std::string& path);

/// Every strategy at its own peak, the one with the index `baseline` being what the others are
/// compared with. There is at least one run.
std::string comparison_report(const std::vector<Run>& runs, size_t baseline, ReportFormat format);

}  // namespace shardlens::viewer
