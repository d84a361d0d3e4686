// Plans on its own thread, so that drawing never waits longer for a plan than its patience.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "base/fault.h"
#include "viewer/model/planned_run.h"

namespace shardlens::viewer {

/// The answer to a request: a run, or one line that says why there is no run.
struct PlanAnswer {
  PlanRequest request;
  std::optional<Run> run;
  Problem refusal;
};

/// Plans the request in the calling thread. Never throws for the content of a request: that becomes
/// a refusal.
PlanAnswer answer_of(const PlanRequest& request, std::optional<profiler::Space> space);

/// Answers the newest request; a new request replaces one that is still waiting. All calls must
/// come from one thread.
class PlanWorker {
 public:
  /// Starts the thread. Its lanes show `space`, as in open_runs.
  explicit PlanWorker(std::optional<profiler::Space> space);

  void ask(const PlanRequest& request);
  /// Returns the answer to the newest request, once, as soon as it is ready; nothing if that takes
  /// longer than `most`.
  std::optional<PlanAnswer> wait(std::chrono::milliseconds most);

 private:
  void work(const std::stop_token& stop);

  const std::optional<profiler::Space> space_;
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::optional<PlanRequest> wanted_;  // the newest request, while it waits
  std::optional<PlanRequest> newest_;
  std::optional<PlanAnswer> answer_;
  std::jthread thread_;  // last: it ends first
};

}  // namespace shardlens::viewer
