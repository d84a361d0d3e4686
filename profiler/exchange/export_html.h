// Exports timelines as one HTML page that needs no other file: a stacked area by category for each
// rank, with step marks and the peak named. A script in the page draws on a canvas; the words and
// bytes of the peak are text, which can be read without it.
#pragma once

#include <cstddef>
#include <ostream>
#include <vector>

#include "profiler/exchange/timeline.h"

namespace shardlens::profiler {

/// Returns the number of points that each rank's timeline should have to keep the page below 1 MB.
size_t html_points(size_t ranks);

/// Writes the timelines of one rank or of all ranks of a run, in the given order.
void write_html(const std::vector<Timeline>& timelines, std::ostream& out);

}  // namespace shardlens::profiler
