// Makes a rank's checkpoints while it trains: decides when one is due, copies the state, writes the
// copy while training continues, and restores the state from a file.
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

/// Returns the layout of a job's checkpoint files.
FileLayout layout_of(const Job& job);

/// Holds a copy of the state that one rank writes, in host memory, pinned if a device copies it.
class Staging {
 public:
  /// Allocates memory for the rank's part of the state. If several ranks hold a range, each stages
  /// a share of that range.
  Staging(const planner::Schedule& schedule, RankState& state, int rank);

  /// Copies the state. When it returns, the state may change again.
  void take();
  /// Returns where each piece of the copy belongs in the files. Tensors that the layout lacks are
  /// left out.
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

/// Holds what a run reports about its checkpoints at its end.
struct CheckpointCost {
  int64_t count = 0;
  double waited_ms = 0;  // how long training stood still, on this rank
};

class Checkpointer {
 public:
  /// Prepares to write checkpoints. All arguments must outlive the checkpointer.
  Checkpointer(const Job& job, int rank, std::filesystem::path run, const Board& board,
               RankState& state, const GradientScale& gradient_scale);

  /// Restores the rank's state from the checkpoint that the job resumes from, and returns its
  /// position. Throws Failure, damaged, if the checkpoint is not as it was written.
  CheckpointState restore();
  /// Returns what this rank knew at the checkpoint. If the number of ranks has changed, it returns
  /// the mean over the old ranks.
  static RankProgress progress_of(const CheckpointState& state, int rank, int world_size);

  bool is_due(int64_t step, bool ends_epoch) const;

  /// Copies the state and returns while the files are written in the background, or, if the job
  /// says so, after that. It waits for the previous checkpoint, and throws that one's failure.
  void save(CheckpointState position, RankProgress progress);
  /// Throws the last checkpoint's failure, if it failed. Returns at once.
  void check() { writing_.check(); }
  /// Waits for the last checkpoint. Throws its failure, if it failed.
  void wait() { writing_.wait(); }
  /// Waits for the last checkpoint, and writes the trained model.
  void finish(int64_t step);

  const CheckpointCost& cost() const { return cost_; }

 private:
  void restore_range(const StateRange& range, CheckpointReader& reader);
  Patience patience() const;
  /// Verifies what all ranks have read; older checkpoints are removed only after that.
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
  BackgroundTask writing_;  // last: its work uses the members above
};

}  // namespace shardlens::runtime
