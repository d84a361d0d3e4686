// Plans on a thread of its own, so that a picture never waits longer for a plan than it wants to.
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

/// The answer to a request: a run, or one line that says why there is none.
struct PlanAnswer {
  PlanRequest request;
  std::optional<Run> run;
  Problem refusal;
};

/// Plans the request in the calling thread. Never throws for the content of a request: that is a
/// refusal.
PlanAnswer answer_of(const PlanRequest& request, std::optional<profiler::Space> space);

/// Answers the newest request; a new request replaces one that still waits. All calls must come
/// from one thread.
class PlanWorker {
 public:
  /// Starts the thread. Its lanes are of `space`, as open_runs takes it.
  explicit PlanWorker(std::optional<profiler::Space> space);

  void ask(const PlanRequest& request);
  /// Returns the answer to the newest request, once, as soon as it is there; nothing if that takes
  /// longer than `most`.
  std::optional<PlanAnswer> wait(std::chrono::milliseconds most);

 private:
  void work(const std::stop_token& stop);

  const std::optional<profiler::Space> space_;
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::optional<PlanRequest> wanted_;  // the newest, while it waits
  std::optional<PlanRequest> newest_;
  std::optional<PlanAnswer> answer_;
  std::jthread thread_;  // last: it ends first
};

}  // namespace shardlens::viewer
