// Keeps what the what-if panel says about a recorded program, and brings in the runs that are
// recorded with levers.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "viewer/model/levers/lever_runs.h"
#include "viewer/state/view_state.h"

namespace shardlens::viewer {

class LeverLanes {
 public:
  LeverLanes();

  void record_with(std::string program) { record_ = std::move(program); }
  /// Starts over with lanes that show `space`: recordings go on.
  void reset(std::string cache_folder, std::optional<profiler::Space> space);

  /// Follows the panel's program, and waits at most `most` for what is under way. Returns true if
  /// anything has changed.
  bool update(const ViewState& state, std::chrono::milliseconds most);
  /// Returns the panel's program; null if it has none.
  const ProgramLevers* levers() const { return levers_ ? &*levers_ : nullptr; }
  /// Returns the runs that came in since the last call.
  std::vector<Run> take_runs();
  /// Returns one line for each program that has failed since the last call.
  std::vector<std::string> take_messages();
  bool is_busy() const { return runs_ && runs_->is_busy(); }
  /// Returns a number that changes with what the panel shows.
  uint64_t version() const { return version_; }

  // These act on the panel's program.
  void run(const std::vector<profiler::Lever>& levers);
  void stop(const std::vector<profiler::Lever>& levers);
  void stop_all();
  void open(const std::string& folder);

 private:
  std::string record_;
  std::string cache_folder_;
  std::optional<profiler::Space> space_;
  std::string recording_;  // of the panel
  std::optional<ProgramLevers> levers_;
  uint64_t seen_ = 0;    // version of runs_
  int64_t seconds_ = 0;  // that were shown of the program that runs
  uint64_t version_ = 0;
  std::unique_ptr<LeverRuns> runs_;  // from the first panel of a recorded program on
};

}  // namespace shardlens::viewer
