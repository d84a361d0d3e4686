// A run as the viewer shows it: a run's folder or one recording, with one lane for each rank.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "profiler/report/recording_report.h"
#include "viewer/model/lane.h"
#include "viewer/model/lane_cache.h"
#include "viewer/model/passes.h"
#include "viewer/model/trace/joined_trace.h"
#include "viewer/model/trace/predicted_lane.h"

namespace shardlens::viewer {

struct RankLane {
  std::string path;
  Lane lane;
  ActionNames names;
  RecordingStamp stamp;  // when it was opened
  int patience = 0;      // how many checks to skip while nothing is new
  int wait = 0;          // how many of these are left
  profiler::RecordingNotes notes = {};
  PassParts parts = 0;                                // of its actions
  std::shared_ptr<const JoinedTrace> work = nullptr;  // of the GPU, if it is known

  /// True if a part of its actions is communication, which then has a row of its own in a ribbon.
  bool communicates() const { return (parts & kCommunicationParts) != 0; }
};

/// The part of a device's memory that a rank takes, as the verdict of `record` counts it.
struct DeviceUse {
  int64_t pytorch_bytes = 0;            // reserved at most; allocated, if that is all that is known
  std::optional<int64_t> beside_bytes;  // taken by others than PyTorch; nothing: unknown
  int64_t capacity_bytes = 0;
  bool is_out_of_memory = false;  // a request for memory has failed

  int64_t used_bytes() const { return pytorch_bytes + beside_bytes.value_or(0); }
  int64_t free_bytes() const { return capacity_bytes - used_bytes(); }
};

/// Returns "62.13 GiB: 17.05 GiB of 79.18 GiB taken, including 758.00 MiB beside PyTorch", or
/// "none: memory ran out, ...".
std::string headroom_text(const DeviceUse& use);

/// The facts of a plan that are shown with its timeline.
struct Outlook {
  std::string verdict;         // in words: "fits: 5.32 GiB of 139.81 GiB, 134.49 GiB free"
  bool fits = true;            // true if it fits without retries,
  bool needs_retries = false;  // or if it fits only with them
  int64_t device_bytes = 0;
  int64_t capacity_bytes = 0;
  int64_t headroom_bytes = 0;
  double step_seconds = 0;  // predicted; 0: unknown
  std::string step_time{};  // with its band: "84.2 ms +-25 %"; "" on a CPU
};

struct Run {
  std::string path;      // as the user gave it
  std::string name;      // of the folder or file
  std::string strategy;  // "fsdp, keeps weights, fp32"; empty if unknown
  std::vector<RankLane> ranks;
  std::optional<Outlook> outlook{};  // set if the run was planned here
  std::string request_name{};        // its request's name
  std::string request_config{};      // and config

  /// The plan that is drawn over the measured run, and the name under which it was opened.
  std::optional<RankLane> plan{};
  std::string plan_name{};
  std::optional<Outlook> plan_outlook{};

  std::string opened_name{};  // before the user renamed the run; empty: it was not

  /// Returns the run's key, which stays the same while it is open, whatever its name: its path, or
  /// how a plan was requested.
  const std::string& key() const;
  /// Gives the run a name chosen by the user; an empty one restores the original name. Returns true
  /// if that changes the name.
  bool rename(const std::string& wanted);
  /// Returns the memory that is shown.
  profiler::Space space() const { return ranks.front().lane.info().space; }
  /// Returns the index of the rank with the highest peak, which decides whether a run fits. `ranks`
  /// must not be empty.
  size_t peak_rank() const;
  const RankLane& at_peak() const { return ranks[peak_rank()]; }
  /// Returns the memory of the device; 0 if it is unknown, or if the shown memory is not on the
  /// device.
  int64_t capacity_bytes() const;
  /// Returns what a rank takes of its device; nothing if the device's memory is unknown, or if the
  /// shown memory is not on it.
  std::optional<DeviceUse> device_use(const RankLane& rank) const;
  /// Joins the judgements of all ranks: a run is worth as much as its least trustworthy rank.
  profiler::Judgement judgement() const;
  /// True if the run was computed, not measured.
  bool is_predicted() const;
};

struct OpenedRuns {
  std::vector<Run> runs;
  std::vector<std::string> messages;  // one line each: why a path could not be opened
};

/// Says how runs are opened.
struct OpenOptions {
  std::string cache_folder{};  // "": lanes are not cached
  /// The shown memory of every run, also if a run has nothing there. Without it, each run shows its
  /// own device's, or the host's if that is the CPU.
  std::optional<profiler::Space> space{};
  std::vector<std::string> closed{};  // paths of runs that are left out
  std::optional<int> device{};        // the GPU of a snapshot of several
  /// The times of recordings that have both; beside a trace of torch.profiler they are those that
  /// were recorded.
  Clock clock = Clock::predicted;
};

/// Returns how many recordings a run's folder has; 0 if the folder is not a run's.
size_t ranks_in(const std::string& folder);

/// Returns the line that says that nothing exists at a path.
std::string missing_text(const std::string& path);

/// Opens runs, folders that hold runs (up to 64 of each), recordings, PyTorch's snapshots (pickles
/// or JSON), and plans or configurations (.json), which are simulated. A damaged, empty or foreign
/// file becomes a message, and the others are opened. Several threads open the ranks. Never throws
/// for the content of a file.
///
/// The calling thread calls `meanwhile` several times a second with the part of all that has been
/// read. A file that is not wanted any more becomes a message, too.
OpenedRuns open_runs(const std::vector<std::string>& paths, const OpenOptions& options = {},
                     const ReadProgress& meanwhile = {});

/// Returns for each run the index of the run that it is compared with: the first of `wanted` that
/// shows the same memory, else the first run that does.
std::vector<size_t> bases_of(const std::vector<Run>& runs, const std::vector<size_t>& wanted);
/// Overload that prefers `baseline` over the earlier ones.
std::vector<size_t> bases_of(const std::vector<Run>& runs, size_t baseline,
                             const std::vector<size_t>& earlier);

/// Opens the ranks again whose recording was still being written and has grown. Returns true if any
/// has.
bool follow(Run& run);

/// Gives every plan to the first measured run with the schedule that the plan was made for: from
/// then on it is drawn over that run. separate_plans makes the plans separate runs again, each
/// right after its measured one.
void join_plans(std::vector<Run>& runs);
void separate_plans(std::vector<Run>& runs);

/// Returns the strategy in words, from a run's config.json.
std::string strategy_text(const std::string& config_json);

}  // namespace shardlens::viewer
