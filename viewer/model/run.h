// A strategy as the viewer shows it: a run's folder or one recording, with a lane a rank.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "viewer/model/lane.h"
#include "viewer/model/lane_cache.h"
#include "viewer/model/passes.h"

namespace shardlens::viewer {

struct RankLane {
  std::string path;
  Lane lane;
  ActionNames names;
  RecordingStamp stamp;  // when it was opened
  int patience = 0;      // looks to leave out where nothing was new
  int wait = 0;          // of these, how many are left
};

struct Run {
  std::string path;      // as it was given
  std::string name;      // of the folder or file
  std::string strategy;  // "fsdp, keeps weights, fp32"; empty where nothing says it
  std::vector<RankLane> ranks;

  /// The one with the highest peak: it decides whether a strategy fits. There is one.
  size_t peak_rank() const;
  const RankLane& at_peak() const { return ranks[peak_rank()]; }
  /// Of the device; 0: not known.
  int64_t capacity_bytes() const;
};

struct OpenedRuns {
  std::vector<Run> runs;
  std::vector<std::string> messages;  // one line each: what could not be opened, and why
};

/// Opens what it can; whatever is damaged, empty or foreign is a message, and the others are
/// there. Ranks are opened by several threads. Never throws for what a file holds.
OpenedRuns open_runs(const std::vector<std::string>& paths, const std::string& cache_folder);

/// Opens the ranks again whose recording was still being written and has grown. Whether any was.
bool follow(Run& run);

/// In words, from a run's config.json.
std::string strategy_text(const std::string& config_json);

}  // namespace shardlens::viewer
