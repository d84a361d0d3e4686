// Writes checkpoints, and the model at the end. Each rank writes its own part, and rank 0 joins all
// parts into one checkpoint. No LibTorch: the caller says which bytes of memory go where.
//
// [Note: publishing]
// Ranks write into a folder with a temporary name and sync. When rank 0 has all receipts, it adds
// state.json and, last, the manifest, renames the folder, and then writes LATEST. Older checkpoints
// are removed after that. So a kill at any time leaves either a whole checkpoint under its final
// name, or none.
#pragma once

#include <filesystem>
#include <vector>

#include "runtime/checkpoint/checkpoint_part.h"
#include "runtime/checkpoint/checkpoint_store.h"

namespace shardlens::runtime {

struct CheckpointWriterOptions {
  CheckpointStore store;
  planner::Checkpointing wanted;
  int rank = 0;
  int world_size = 1;
  std::chrono::nanoseconds deadline{};  // for a rank that is later than rank 0
};

/// Holds this rank's share of a checkpoint. `ranges` point into memory that must not change during
/// the call.
struct CheckpointShare {
  std::vector<FileRange> ranges;
  RankProgress progress;
};

/// Writes this rank's share. On rank 0 it returns when the checkpoint is published, on other ranks
/// when their part is on the disk. `state.ranks` is filled in from the receipts. Throws as
/// write_part and collect_parts do.
void write_checkpoint(const CheckpointWriterOptions& options, const FileLayout& layout,
                      const CheckpointShare& share, CheckpointState state,
                      const std::function<bool()>& is_stopped = {});

/// Removes unfinished files of the model that killed attempts have left beside `folder`.
void remove_unfinished_models(const std::filesystem::path& folder);

/// Writes only the model, in the same way, for Python to read: model.safetensors, and
/// full-model.pt if the model is below 2 GiB. `folder` is replaced in one step.
void write_model(const CheckpointWriterOptions& options, const FileLayout& layout,
                 const CheckpointShare& share, const std::filesystem::path& folder, int64_t step,
                 const std::function<bool()>& is_stopped = {});

}  // namespace shardlens::runtime
