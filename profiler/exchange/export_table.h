// Writes timelines as tables for spreadsheets and scripts: CSV, in which a newline ends each line
// and texts are quoted where necessary.
#pragma once

#include <ostream>
#include <vector>

#include "profiler/exchange/timeline.h"

namespace shardlens::profiler {

/// Writes rank,time_ms,step,phase,action,total_bytes and a column for each category, in bytes. A
/// step of -1 means that none has begun, an empty action that the point is outside a pass.
void write_timeline_csv(const std::vector<MemoryTimeline>& timelines, std::ostream& out);

/// Writes rank,bytes,category,label,step,action: the ten largest allocations that are alive at each
/// rank's peak, with the step and action in which they were made.
void write_largest_csv(const std::vector<MemoryTimeline>& timelines, std::ostream& out);

}  // namespace shardlens::profiler
