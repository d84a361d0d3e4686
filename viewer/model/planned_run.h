// Shows strategies that nobody has run: simulates a configuration, so that its predicted timeline
// can be drawn like a recording.
#pragma once

#include <optional>
#include <string>

#include "viewer/model/run.h"

namespace shardlens::viewer {

/// A configuration to plan, with its name.
struct PlanRequest {
  std::string name;
  std::string config;  // config.json's text
  std::string gpu;     // from gpus.h; empty: the configuration's device decides

  bool operator==(const PlanRequest&) const = default;
};

/// Returns the configuration of a run, for the device that it ran on or was planned for. Its config
/// is empty if the recording has none, as in an imported one.
PlanRequest request_of(const Run& run);

/// Reads a .json file: the output of `shardlens plan --json`, or a run's config.json. Throws
/// std::invalid_argument for anything else.
PlanRequest request_of_file(const std::string& path);

/// Simulates the request; the lane shows `space`, as in open_runs. Throws std::invalid_argument for
/// a configuration that cannot run.
Run planned_run(const PlanRequest& request, std::optional<profiler::Space> space = std::nullopt);

}  // namespace shardlens::viewer
