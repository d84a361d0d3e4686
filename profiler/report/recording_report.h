// Makes a report from a recording's file, with the reader and the analysis together.
#pragma once

#include <string>

#include "profiler/report/report.h"

namespace shardlens::profiler {

/// Reads the file at `path` block by block, so that only what is alive is in memory. The report's
/// `source` is the path. Throws as Reader does.
RankReport report_of(const std::string& path);

}  // namespace shardlens::profiler
