// Makes a rank's checkpoints while it trains: decides when one is due, copies the state, which is
// written while training goes on, and restores the state from a file.
#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/background_task.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/checkpoint/checkpoint_writer.h"
#include "runtime/execute/rank_state.h"
#include "runtime/execute/step_ops.h"
#include "runtime/train/job.h"

namespace shardlens::runtime {

class CheckpointReader;

/// Returns the layout of the files of a job's checkpoints.
FileLayout layout_of(const Job& job);

/// Holds a copy of what one rank writes, in host memory, pinned if a device copies it.
class Staging {
 public:
  /// Allocates memory for the rank's part of the state. If several ranks hold a range, each stages
  /// its share of it.
  Staging(const planner::Schedule& schedule, RankState& state, int rank);

  /// Copies the state. Returns when the state may change again.
  void take();
  /// Returns where each piece of the copy lies in the files. Tensors that the layout lacks are left
  /// out.
  std::vector<FileRange> ranges(const FileLayout& layout) const;

 private:
  struct StagedBucket {
    int64_t begin = 0;                 // element of the shard
    std::vector<at::Tensor> from;      // weights, then moments: views of the state
    std::vector<at::Tensor> copies{};  // of the same lengths
  };

  /// Returns the share of a bucket that this rank writes.
  static StagedBucket share_of(const planner::Schedule& schedule, const planner::Bucket& bucket,
                               const BucketState& held, int rank);
  void take_memory(bool is_pinned);

  std::vector<StateRange> state_ranges_;
  std::vector<std::vector<StagedBucket>> buckets_;  // by group
};

/// Holds what a run reports of its checkpoints at its end.
struct CheckpointCost {
  int64_t count = 0;
  double waited_ms = 0;  // how long training stood still, on this rank
};

class Checkpointer {
 public:
  /// Prepares to write checkpoints. All that is referred to must outlive the checkpointer.
  Checkpointer(const Job& job, int rank, std::filesystem::path run, const Board& board,
               RankState& state, const GradientScale& gradient_scale);

  /// Restores the rank's state from the checkpoint that the job goes on from, and returns where it
  /// stood. Throws Failure, damaged, if the checkpoint is not as it was written.
  CheckpointState restore();
  /// Returns what this rank knew at the checkpoint. On another number of ranks it returns the mean
  /// of what they knew.
  static RankProgress progress_of(const CheckpointState& state, int rank, int world_size);

  bool is_due(int64_t step, bool ends_epoch) const;

  /// Copies the state and returns while the files are written in the background, or after that if
  /// the job says so. It waits for the checkpoint before, and throws what that one failed with.
  void save(CheckpointState position, RankProgress progress);
  /// Throws what the last checkpoint has failed with. Returns at once.
  void check() { writing_.check(); }
  /// Waits for the last checkpoint. Throws what it has failed with.
  void wait() { writing_.wait(); }
  /// Waits for the last checkpoint, and writes the trained model.
  void finish(int64_t step);

  const CheckpointCost& cost() const { return cost_; }

 private:
  void restore_range(const StateRange& range, CheckpointReader& reader);
  Patience patience() const;
  /// Verifies what all ranks have read; only then are older checkpoints removed.
  void verify(CheckpointReader& reader) const;
  std::string drawn_generator() const;

  const Job& job_;
  int rank_;
  std::filesystem::path run_;
  Board board_;
  RankState& state_;
  const GradientScale& gradient_scale_;
  FileLayout layout_;
  CheckpointWriterOptions options_;
  std::string first_generator_;  // of the process at its start
  std::optional<Staging> staging_;
  CheckpointCost cost_;
  BackgroundTask writing_;  // the last: its work uses the others
};

}  // namespace shardlens::runtime
