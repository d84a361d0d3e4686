// Shows strategies that nobody has run: a configuration is simulated, and its predicted timeline is
// drawn like a recording.
#pragma once

#include <optional>
#include <string>

#include "viewer/model/run.h"

namespace shardlens::viewer {

/// A configuration to be planned, with its name.
struct PlanRequest {
  std::string name;
  std::string config;  // config.json's text
  std::string gpu;     // of gpus.h; empty: the configuration's device decides

  bool operator==(const PlanRequest&) const = default;
};

/// Returns the configuration of a run, for the device that it ran on or was planned for. Its config
/// is empty if the recording has none, as an imported one.
PlanRequest request_of(const Run& run);

/// Reads a .json file: the output of `shardlens plan --json`, or a run's config.json. Throws
/// std::invalid_argument for everything else.
PlanRequest request_of_file(const std::string& path);

/// Simulates the request; the lane is of `space`, as open_runs takes it. Throws
/// std::invalid_argument for a configuration that cannot run.
Run planned_run(const PlanRequest& request, std::optional<profiler::Space> space = std::nullopt);

}  // namespace shardlens::viewer
