// Writes the timeline of a simulated run in the format of a recording: write_predicted_timeline
// saves it, and a viewer draws it for a plan that was never saved.
#pragma once

#include "planner/planner.h"
#include "planner/prepared_run.h"
#include "planner/simulate/timeline.h"
#include "profiler/recording/profile.h"

namespace shardlens::planner {

/// Returns the timeline as a recording, with the cost model's times. `fits`: true if the run fits
/// on the target's device; else the timeline is that of an unlimited device, and the recording's
/// notice says so.
profiler::Profile predicted_profile(const PreparedRun& run, const Timeline& timeline, bool fits);

/// Writes the predicted timeline of a rank as a recording, with the cost model's times. Its peaks
/// are the plan's: if the run does not fit, those of an unlimited device. Throws std::runtime_error
/// if the file cannot be written.
void write_predicted_timeline(const std::string& path, const Config& config,
                              const PlanOptions& options);

/// Lists the schedule of a training step. `shards_text` lists which rank owns which range of every
/// parameter in which dtype.
std::string schedule_text(const Config& config, const PlanOptions& options);
std::string shards_text(const Config& config, const PlanOptions& options);

}  // namespace shardlens::planner
