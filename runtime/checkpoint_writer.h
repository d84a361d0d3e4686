// Writes checkpoints, and the model at the end, as one of the ranks: its own part, and on rank 0
// what makes all parts one. No LibTorch: whoever calls says which bytes of memory go where.
//
// [Note: publishing]
// Ranks write into a folder with a temporary name and sync. When rank 0 has the receipts of all,
// it adds state.json and, last, the manifest, renames the folder, and then tells LATEST. Older
// checkpoints are given up after that. So whatever is killed at any time leaves a checkpoint under
// a final name that is whole, or none.
#pragma once

#include <filesystem>
#include <vector>

#include "runtime/checkpoint_part.h"
#include "runtime/checkpoint_store.h"

namespace shardlens::runtime {

struct WriterOptions {
  CheckpointStore store;
  planner::Checkpointing wanted;
  int rank = 0;
  int world_size = 1;
  std::chrono::nanoseconds deadline{};  // for a rank that is later than rank 0
};

/// This rank's share of a checkpoint. `ranges` point into memory that stays as it is meanwhile.
struct CheckpointShare {
  std::vector<FileRange> ranges;
  RankProgress progress;
};

/// Returns on rank 0 when the checkpoint is published, on others when their part is on the disk.
/// `state.ranks` is filled in from the receipts. Throws as write_part and collect_parts.
void write_checkpoint(const WriterOptions& options, const FileLayout& layout,
                      const CheckpointShare& share, CheckpointState state,
                      const std::function<bool()>& is_stopped = {});

/// What write_model has left, for `folder`, of attempts that were killed.
void remove_unfinished_models(const std::filesystem::path& folder);

/// The same for the model alone, which Python reads: model.safetensors, and full-model.pt where it
/// is below 2 GiB. `folder` is made anew, in one step.
void write_model(const WriterOptions& options, const FileLayout& layout,
                 const CheckpointShare& share, const std::filesystem::path& folder, int64_t step,
                 const std::function<bool()>& is_stopped = {});

}  // namespace shardlens::runtime
