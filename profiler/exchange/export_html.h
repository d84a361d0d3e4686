// Timelines as one HTML page that needs nothing beside it: a stacked area by category a rank, with
// step marks and the peak named. Drawn by its own script on a canvas; words and bytes of the peak
// are text, and can be read without it.
#pragma once

#include <cstddef>
#include <ostream>
#include <vector>

#include "profiler/exchange/timeline.h"

namespace shardlens::profiler {

/// In how many points a rank's timeline should come, that the page stays under 1 MB.
size_t html_points(size_t ranks);

/// One rank or all of a run, in their order.
void write_html(const std::vector<Timeline>& timelines, std::ostream& out);

}  // namespace shardlens::profiler
