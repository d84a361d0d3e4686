// Keeps the plans among the runs as a state wants them: joined to what was measured or beside it,
// those that were kept, and the one of the what-if panel at the end.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "viewer/model/plan_worker.h"
#include "viewer/model/run.h"
#include "viewer/state/view_state.h"

namespace shardlens::viewer {

/// How the what-if panel's plan stands.
struct PlanNews {
  bool is_stale = false;      // what is shown is the plan before: the new one is being made
  std::string refusal;        // why there is no plan; empty: there is, or will be
  std::optional<size_t> run;  // the run that shows it

  bool operator==(const PlanNews&) const = default;
};

class PlanLanes {
 public:
  /// `runs` are those of the files from now on, opened with that space.
  void reset(const std::vector<Run>& runs, std::optional<profiler::Space> space);

  /// Makes `runs` what the state wants, waiting at most so long for the what-if panel's plan.
  /// Whether anything has changed.
  bool update(const ViewState& state, std::vector<Run>& runs, std::chrono::milliseconds most);

  const PlanNews& news() const { return news_; }
  /// One line each: what was kept and cannot be planned.
  const std::vector<std::string>& refusals() const { return refusals_; }

 private:
  bool join(bool wanted, std::vector<Run>& runs);
  bool keep(const std::vector<PlanRequest>& wanted, std::vector<Run>& runs);
  void follow(const ViewState& state, std::vector<Run>& runs, std::chrono::milliseconds most);
  void take(PlanAnswer answer, std::vector<Run>& runs);
  void drop_what_if(std::vector<Run>& runs);

  std::optional<profiler::Space> space_;
  size_t files_ = 0;  // runs in front of the plans
  bool joined_ = false;
  std::vector<PlanRequest> kept_;
  std::vector<std::string> refusals_;
  std::optional<PlanRequest> asked_;     // the newest
  std::optional<PlanRequest> answered_;  // the newest of these
  PlanNews news_;
  std::unique_ptr<PlanWorker> worker_;  // from the first request on
};

}  // namespace shardlens::viewer
