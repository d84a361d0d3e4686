// Plans on a thread of its own, so that a picture never waits longer than it wants to.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "viewer/model/planned_run.h"

namespace shardlens::viewer {

/// What came of a request: a run, or one line on why there is none.
struct PlanAnswer {
  PlanRequest request;
  std::optional<Run> run;
  std::string refusal;
};

/// Never throws for what a request says.
PlanAnswer answer_of(const PlanRequest& request, std::optional<profiler::Space> space);

/// Answers the newest request; one that was asked meanwhile replaces what still waits. All calls
/// come from one thread.
class PlanWorker {
 public:
  /// Its lanes are of `space`, as open_runs takes it.
  explicit PlanWorker(std::optional<profiler::Space> space);

  void ask(const PlanRequest& request);
  /// The answer to the newest request, once, as soon as it is there; nothing where that takes
  /// longer than `most`.
  std::optional<PlanAnswer> wait(std::chrono::milliseconds most);

 private:
  void work(const std::stop_token& stop);

  const std::optional<profiler::Space> space_;
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::optional<PlanRequest> wanted_;  // newest, not taken yet
  std::optional<PlanRequest> newest_;
  std::optional<PlanAnswer> answer_;
  std::jthread thread_;  // last: it ends first
};

}  // namespace shardlens::viewer
