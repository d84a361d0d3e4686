// One rank's training run: epochs, batches, metrics, evaluation. The order inside a step is the
// schedule's and the executor's.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "runtime/comm/board/board.h"
#include "runtime/execute/device.h"
#include "runtime/execute/executor.h"
#include "runtime/train/checkpointer.h"
#include "runtime/train/job.h"

namespace shardlens::runtime {

struct TrainerOptions {
  int rank = 0;
  c10::Device device{c10::kCPU};
  Streams* streams = nullptr;  // of the device
  Channels channels;
  Board board;
  std::filesystem::path run;      // its folder
  std::filesystem::path metrics;  // the rank that writes results adds to it
  /// Called before the first step and after each one. It is set for ranks whose board no launcher
  /// can ask to stop.
  std::function<bool(int64_t steps_done)> must_stop{};
};

/// Holds what a rank knows at the end.
struct TrainResult {
  bool is_preempted = false;  // asked to stop: has saved, and is unfinished
  int64_t restarts = 0;
  int64_t steps = 0;
  int64_t epochs = 0;                   // finished
  double train_loss = 0;                // mean over the last epoch
  std::optional<double> test_accuracy;  // empty if there are no test samples
  double median_step_ms = 0;
  double p95_step_ms = 0;
  std::optional<MemoryPeak> peak;       // of the whole run, from the first allocation on
  std::optional<MemoryPeak> step_peak;  // of training steps only, from the third one on
  int64_t allocation_retries = 0;
  CheckpointCost checkpoints;  // of this attempt, as are all times
  std::string notice;          // as in Job
  std::string init{};          // --init; empty: none was given
  bool init_is_verified = false;
};

/// Runs the job on this rank to its end, or to the step that it is asked to stop after. Throws
/// CommunicationError if peers are lost.
TrainResult train_rank(const Job& job, const TrainerOptions& options);

/// Says where an unfinished run stopped.
struct UnfinishedRun {
  std::string reason{};
  int64_t steps = 0;
  int64_t restarts = 0;
};

/// Returns the result.json of a run that succeeded.
std::string to_json(const TrainResult& result);
/// Returns the result.json of a run that failed.
std::string failure_json(const UnfinishedRun& end);
/// Returns the result.json of a run that has saved and can go on.
std::string preempted_json(const UnfinishedRun& end);

}  // namespace shardlens::runtime
