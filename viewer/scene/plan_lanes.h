// Keeps the plans among the runs as a state wants them: joined to the measured runs or beside them,
// then the kept plans, and the one of the what-if panel at the end.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/fault.h"
#include "viewer/model/plan_worker.h"
#include "viewer/model/run.h"
#include "viewer/state/view_state.h"

namespace shardlens::viewer {

/// The state of the what-if panel's plan.
struct PlanNews {
  bool is_stale = false;      // an older plan is shown while the new one is being made
  Problem refusal;            // why there is no plan; nothing: a plan exists or will
  std::optional<size_t> run;  // the run that shows it

  bool operator==(const PlanNews&) const = default;
};

class PlanLanes {
 public:
  /// Starts over with `runs`, which are those of the files, opened with that space.
  void reset(const std::vector<Run>& runs, std::optional<profiler::Space> space);

  /// Changes `runs` as the state wants, and waits at most `most` for the what-if panel's plan.
  /// Returns true if anything changed.
  bool update(const ViewState& state, std::vector<Run>& runs, std::chrono::milliseconds most);

  /// Puts a run of a file behind the others, in front of the plans. Returns its index.
  size_t add_file(Run run, std::vector<Run>& runs);

  const PlanNews& news() const { return news_; }
  /// Returns one line for each kept plan that cannot be planned.
  const std::vector<std::string>& refusals() const { return refusals_; }

 private:
  bool join(bool wanted, std::vector<Run>& runs);
  bool keep(const std::vector<PlanRequest>& wanted, std::vector<Run>& runs);
  void follow(const ViewState& state, std::vector<Run>& runs, std::chrono::milliseconds most);
  void take(PlanAnswer answer, std::vector<Run>& runs);
  void drop_what_if(std::vector<Run>& runs);

  std::optional<profiler::Space> space_;
  size_t files_ = 0;  // number of runs in front of the plans
  bool joined_ = false;
  std::vector<PlanRequest> kept_;
  std::vector<std::string> refusals_;
  std::optional<PlanRequest> asked_;     // the newest
  std::optional<PlanRequest> answered_;  // the newest answered one
  PlanNews news_;
  std::unique_ptr<PlanWorker> worker_;  // from the first request on
};

}  // namespace shardlens::viewer
