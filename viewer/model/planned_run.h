// Strategies that nobody has run: a configuration is simulated, and its predicted timeline is drawn
// like a recording.
#pragma once

#include <optional>
#include <string>

#include "viewer/model/run.h"

namespace shardlens::viewer {

/// What is to be planned.
struct PlanRequest {
  std::string name;
  std::string config;  // config.json's text
  std::string gpu;     // of gpus.h; empty: as the configuration's device says

  bool operator==(const PlanRequest&) const = default;
};

/// The configuration of a run, for the device that it ran on or was planned for. Its config is
/// empty where the recording has none, as one that was imported.
PlanRequest request_of(const Run& run);

/// A .json file: of `shardlens plan --json`, or a run's config.json. Throws std::invalid_argument
/// for everything else.
PlanRequest request_of_file(const std::string& path);

/// Simulates it; the lane is of `space`, as open_runs takes it. Throws std::invalid_argument for
/// what nobody can run.
Run planned_run(const PlanRequest& request, std::optional<profiler::Space> space = std::nullopt);

}  // namespace shardlens::viewer
