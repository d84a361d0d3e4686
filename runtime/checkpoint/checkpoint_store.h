// Manages the folder of a run's checkpoints: lists them, checks whether they are whole, publishes
// new ones and removes old ones.
//
//   RUN/checkpoints/  step-00000938/      published: renamed into place once fully synced
//                     .tmp-step-00001876-g3/ being written by the third attempt, or left by it
//                     .old-step-00000469/ being removed
//                     .read-step-00000938-g4/ where the ranks meet that resume from the checkpoint
//                     LATEST              the name of the newest
//
// [Note: the life of a checkpoint]
//   1. Ranks write their parts into .tmp-STEP-gN, N being the attempt's generation, and sync them.
//   2. Rank 0 has every part's receipt, and writes and syncs the manifest with their checksums.
//   3. publish() renames the folder into place. Nobody reads it before, and it is whole after.
//   4. LATEST is written, which is a hint: readers take the newest checkpoint that verifies.
//   5. prune() renames checkpoints that --keep does not ask for to .old-STEP and removes them. A
//      checkpoint that does not verify is set aside, never removed.
// A process that is killed in 1 or 2 leaves a .tmp-, in 5 an .old-; take_over() of the next attempt
// removes both. A .tmp- is renamed to .old- before it is removed, since ranks of the killed attempt
// may still be writing into it. A process killed between 3 and 4 leaves a LATEST that is older than
// the newest checkpoint.
//
// Only the process that holds the run's lock may call this, and only for the newest attempt
// (fence.h). Only the names above are ever touched or removed.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "planner/config/checkpointing.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/checkpoint/fence.h"
#include "runtime/checkpoint/verification.h"

namespace shardlens::runtime {

struct StoredCheckpoint {
  std::filesystem::path path;
  int64_t step = 0;
};

/// Names a checkpoint that was passed over because it is damaged.
struct DamagedCheckpoint {
  StoredCheckpoint checkpoint;
  std::string fault;
};

struct NewestCheckpoint {
  std::optional<StoredCheckpoint> found;
  std::vector<DamagedCheckpoint> damaged;  // newer than `found`
  bool is_verified = true;                 // `found` was read in full
};

/// Removes a folder that holds only a manifest and the files that the manifest names. Returns true
/// if the folder is gone, or never existed.
bool remove_written(const std::filesystem::path& folder);

/// Removes the folders in `parent` that a killed attempt has left: .tmp-, .read- and .old-, with
/// the attempt's generation at the end of their names. `is_ours` is called with each name without
/// prefix and generation, "step-00000938" for example.
void remove_unfinished(const std::filesystem::path& parent,
                       const std::function<bool(std::string_view)>& is_ours);

/// Returns the step in the name of a checkpoint's folder; nothing for any other name.
std::optional<int64_t> step_of(const std::filesystem::path& folder);

class CheckpointStore {
 public:
  /// Uses this folder, which may be missing. `fence` is the fence of the attempt that writes.
  explicit CheckpointStore(std::filesystem::path folder, Fence fence = {})
      : folder_(std::move(folder)), fence_(std::move(fence)) {}

  const std::filesystem::path& folder() const { return folder_; }
  const Fence& fence() const { return fence_; }

  /// Returns every folder with a checkpoint's name, whole or not, oldest first.
  std::vector<StoredCheckpoint> list() const;

  /// Returns the newest checkpoint that verifies. `look` says whether every byte is read, or only
  /// sizes.
  NewestCheckpoint newest_checkpoint(Look look = Look::every_byte) const;

  /// Returns the folder in which a checkpoint of that step is written.
  std::filesystem::path unfinished_folder(int64_t step) const;

  /// Returns the folder in which the ranks meet that read the checkpoint of that step.
  std::filesystem::path being_read(int64_t step) const;

  /// Renames an unfinished checkpoint into place. The checkpoint must be complete on the disk, with
  /// its manifest. A folder that already has the name is set aside. Throws Failure, overtaken, if a
  /// newer attempt has begun.
  void publish(int64_t step) const;

  /// Removes checkpoints that `wanted` does not ask to keep, but never that of step `latest`.
  void prune(const planner::Checkpointing& wanted, int64_t latest) const;

  /// Takes over the folder for an attempt that resumes from what newest_checkpoint() has found:
  /// cleans up what the previous attempt left when it was killed. Damaged checkpoints are set
  /// aside. No checkpoint is removed before the one that was found is verified.
  void take_over(const NewestCheckpoint& newest, const planner::Checkpointing& wanted) const;

  /// Removes everything that a run has written here, and the folder if it is empty then.
  void clear() const;

 private:
  void tell_latest(int64_t step) const;
  /// Removes what killed attempts have left half written or half removed.
  void clean_up() const;
  /// Frees a checkpoint's name by renaming its folder, for example to "damaged-step-00000938".
  void set_aside(const StoredCheckpoint& checkpoint) const;
  void remove(const StoredCheckpoint& checkpoint) const;

  std::filesystem::path folder_;
  Fence fence_;
};

}  // namespace shardlens::runtime
