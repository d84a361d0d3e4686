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

/// What a plan says beside its timeline.
struct Outlook {
  std::string verdict;  // in words: "fits: 5.32 GiB of 139.80 GiB, 134.48 GiB free"
  bool fits = true;     // without retries
  int64_t device_bytes = 0;
  int64_t capacity_bytes = 0;
  int64_t headroom_bytes = 0;
};

struct Run {
  std::string path;      // as it was given
  std::string name;      // of the folder or file
  std::string strategy;  // "fsdp, keeps weights, fp32"; empty where nothing says it
  std::vector<RankLane> ranks;
  std::optional<Outlook> outlook{};  // of one that was planned here,
  std::string request_config{};      // and what it was planned from

  /// The plan that is drawn over what was measured, and the name under which it was opened.
  std::optional<RankLane> plan{};
  std::string plan_name{};
  std::optional<Outlook> plan_outlook{};

  /// The one with the highest peak: it decides whether a strategy fits. There is one.
  size_t peak_rank() const;
  const RankLane& at_peak() const { return ranks[peak_rank()]; }
  /// Of the device; 0: not known, or what is shown does not lie there.
  int64_t capacity_bytes() const;
  /// Joins those of all ranks: a run is worth what its least trustworthy rank is.
  profiler::Judgement judgement() const;
  /// Whether it was computed, not measured.
  bool is_predicted() const;
};

struct OpenedRuns {
  std::vector<Run> runs;
  std::vector<std::string> messages;  // one line each: what could not be opened, and why
};

/// Opens what it can: folders of runs, recordings, PyTorch's snapshots (.pickle, .pkl), and plans
/// or configurations (.json), which are simulated. Whatever is damaged, empty or foreign is a
/// message, and the others are there. Ranks are opened by several threads. Never throws for what a
/// file holds.
/// `space`: what is shown of every run, also where it has nothing there; else each one's own
/// device's, or of the host where that is the CPU.
/// `meanwhile` is told by the calling thread, several times a second, which part of all has been
/// read. What is not wanted any more is a message, too.
OpenedRuns open_runs(const std::vector<std::string>& paths, const std::string& cache_folder,
                     std::optional<profiler::Space> space = std::nullopt,
                     const ReadPart& meanwhile = {});

/// Opens the ranks again whose recording was still being written and has grown. Whether any was.
bool follow(Run& run);

/// Gives every plan to the first measured run that has the schedule it was made of: from then on it
/// is drawn there. separate_plans makes them runs of their own again, each behind its measured one.
void join_plans(std::vector<Run>& runs);
void separate_plans(std::vector<Run>& runs);

/// In words, from a run's config.json.
std::string strategy_text(const std::string& config_json);

}  // namespace shardlens::viewer
