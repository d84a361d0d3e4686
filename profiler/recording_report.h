// What a recording's file says: reader and analysis together.
#pragma once

#include <string>

#include "profiler/report/report.h"

namespace shardlens::profiler {

/// Block by block, in memory of what is alive. `source` is the path. Throws as Reader does.
RankReport report_of(const std::string& path);

}  // namespace shardlens::profiler
