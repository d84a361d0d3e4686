// The timeline of a simulated run in the words of a recording: what write_predicted_timeline writes
// and what a viewer draws of a plan that was never written.
#pragma once

#include "planner/prepared_run.h"
#include "planner/timeline.h"
#include "profiler/profile.h"

namespace shardlens::planner {

/// With the cost model's times. `fits`: on the target's device; else the timeline is that of an
/// unlimited one, and the recording's notice says so.
profiler::Profile predicted_profile(const PreparedRun& run, const Timeline& timeline, bool fits);

}  // namespace shardlens::planner
