// Timelines as tables for spreadsheets and scripts: CSV, lines ended by a newline, texts quoted
// where they must be.
#pragma once

#include <ostream>
#include <vector>

#include "profiler/exchange/timeline.h"

namespace shardlens::profiler {

/// rank,time_ms,step,phase,action,total_bytes and a column a category, in bytes. A step of -1: none
/// has begun; an empty action: outside a pass.
void write_timeline_csv(const std::vector<Timeline>& timelines, std::ostream& out);

/// rank,bytes,category,label,step,action: the ten largest allocations alive at each rank's peak,
/// with the step and action in which they were made.
void write_largest_csv(const std::vector<Timeline>& timelines, std::ostream& out);

}  // namespace shardlens::profiler
