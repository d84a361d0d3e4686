// Writes the timeline of a simulated run in the format of a recording: write_predicted_timeline
// saves it, and a viewer draws it for a plan that was never saved.
#pragma once

#include "planner/prepared_run.h"
#include "planner/simulate/timeline.h"
#include "profiler/recording/profile.h"

namespace shardlens::planner {

/// Returns the timeline as a recording, with the cost model's times. `fits`: true if the run fits
/// on the target's device; else the timeline is that of an unlimited device, and the recording's
/// notice says so.
profiler::Profile predicted_profile(const PreparedRun& run, const Timeline& timeline, bool fits);

}  // namespace shardlens::planner
