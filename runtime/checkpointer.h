// A rank's checkpoints while it trains: when one is due, the copy of the state that is written
// beside the training, and the way back from a file into the state.
#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "runtime/background_task.h"
#include "runtime/checkpoint.h"
#include "runtime/checkpoint_writer.h"
#include "runtime/gradient_scale.h"
#include "runtime/job.h"
#include "runtime/rank_state.h"

namespace shardlens::runtime {

class CheckpointReader;

/// The files of a job's checkpoints.
FileLayout layout_of(const Job& job);

/// A copy of what one rank writes, in host memory, pinned where a device copies it.
class Staging {
 public:
  /// Takes memory for the rank's part of the state; where several hold a range, for its share.
  Staging(const planner::Schedule& schedule, RankState& state, int rank);

  /// Copies; returns when the state may change again.
  void take();
  /// Where each piece of the copy lies in the files; tensors that the layout lacks are left out.
  std::vector<FileRange> ranges(const FileLayout& layout) const;

 private:
  struct StagedBucket {
    int64_t begin = 0;                 // element of the shard
    std::vector<at::Tensor> from;      // weights, then moments: views of the state
    std::vector<at::Tensor> copies{};  // of the same lengths
  };

  /// What of a bucket this rank writes.
  static StagedBucket share_of(const planner::Schedule& schedule, const planner::Bucket& bucket,
                               const BucketState& held, int rank);
  void take_memory(bool is_pinned);

  std::vector<StateRange> state_ranges_;
  std::vector<std::vector<StagedBucket>> buckets_;  // by group
};

/// What a run says of its checkpoints at the end.
struct CheckpointCost {
  int64_t count = 0;
  double waited_ms = 0;  // that training stood still, on this rank
};

class Checkpointer {
 public:
  /// All that is referred to must outlive it.
  Checkpointer(const Job& job, int rank, std::filesystem::path run, const Board& board,
               RankState& state, GradientScale& gradient_scale);

  /// Restores the rank's state from the checkpoint that the job goes on from, and says where it
  /// stood. Throws Failure, damaged, where that is not as it was written.
  CheckpointState restore();
  /// What this rank knew then; on another number of ranks the mean of what they knew.
  static RankProgress progress_of(const CheckpointState& state, int rank, int world_size);

  bool is_due(int64_t step, bool ends_epoch) const;

  /// Copies the state and returns; the files are written meanwhile, or before where the job says
  /// so. Waits for the checkpoint before. Throws what that one failed with.
  void save(CheckpointState position, RankProgress progress);
  /// Throws what the last one has failed with; returns at once.
  void check() { writing_.check(); }
  /// Waits for the last one. Throws what it has failed with.
  void wait() { writing_.wait(); }
  /// Waits for the last one, and writes the trained model.
  void finish(int64_t step);

  const CheckpointCost& cost() const { return cost_; }

 private:
  void restore_range(const StateRange& range, CheckpointReader& reader);
  Patience patience() const;
  /// With all ranks; older checkpoints are given up for it.
  void verify(CheckpointReader& reader) const;
  std::string drawn_generator() const;

  const Job& job_;
  int rank_;
  std::filesystem::path run_;
  Board board_;
  RankState& state_;
  GradientScale& gradient_scale_;
  FileLayout layout_;
  WriterOptions options_;
  std::string first_generator_;  // as the process began
  std::optional<Staging> staging_;
  CheckpointCost cost_;
  BackgroundTask writing_;  // the last: its work uses the others
};

}  // namespace shardlens::runtime
