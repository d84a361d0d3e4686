// The folder of a run's checkpoints: what is there, whether it is whole, how a new one is made
// known and an old one given up.
//
//   RUN/checkpoints/  step-00000938/      published: renamed into place when all of it was synced
//                     .tmp-step-00001876-g3/ being written by the third attempt, or left by it
//                     .old-step-00000469/ being removed
//                     .read-step-00000938-g4/ where ranks meet that go on from it
//                     LATEST              the name of the newest
//
// Whoever holds the run's lock calls, of the newest attempt alone (fence.h); nothing else is ever
// touched or removed.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "planner/strategy.h"
#include "runtime/checkpoint.h"
#include "runtime/fence.h"
#include "runtime/verification.h"

namespace shardlens::runtime {

struct StoredCheckpoint {
  std::filesystem::path path;
  int64_t step = 0;
};

/// One that was passed over.
struct DamagedCheckpoint {
  StoredCheckpoint checkpoint;
  std::string fault;
};

struct NewestCheckpoint {
  std::optional<StoredCheckpoint> found;
  std::vector<DamagedCheckpoint> damaged;  // that are newer
  bool is_verified = true;                 // what was found
};

/// Removes a folder that holds a manifest and what it names, and nothing else; returns whether it
/// is gone, or never was.
bool remove_written(const std::filesystem::path& folder);

/// The step of a checkpoint's folder, by its name.
std::optional<int64_t> step_of(const std::filesystem::path& folder);

class CheckpointStore {
 public:
  /// The folder need not be there. `fence`: of the attempt that writes.
  explicit CheckpointStore(std::filesystem::path folder, Fence fence = {})
      : folder_(std::move(folder)), fence_(std::move(fence)) {}

  const std::filesystem::path& folder() const { return folder_; }
  const Fence& fence() const { return fence_; }

  /// Whatever bears a checkpoint's name, whole or not; the oldest first.
  std::vector<StoredCheckpoint> list() const;

  /// The newest that verifies, as far as was looked.
  NewestCheckpoint newest(Look look = Look::every_byte) const;

  /// Where a checkpoint of that step is written.
  std::filesystem::path unfinished(int64_t step) const;

  /// Where ranks meet that read a checkpoint.
  std::filesystem::path being_read(int64_t step) const;

  /// Once all of it is on the disk, with its manifest. What bears the name is set aside.
  /// Throws Failure, overtaken, where a newer attempt has begun.
  void publish(int64_t step) const;

  /// Gives up what `wanted` does not ask to keep, never that of step `latest`.
  void give_up(const planner::Checkpointing& wanted, int64_t latest) const;

  /// What newest() has found is gone on from: puts right whatever the run before was killed at.
  /// Damaged ones are set aside; none is given up before what was found is verified.
  void take_over(const NewestCheckpoint& newest, const planner::Checkpointing& wanted) const;

  /// Removes all that a run has written here, and the folder if nothing else is there.
  void clear() const;

 private:
  void tell_latest(int64_t step) const;
  /// Removes what killed runs have left half written or half removed.
  void remove_unfinished() const;
  /// Makes a name free: "damaged-step-00000938" has it then.
  void set_aside(const StoredCheckpoint& checkpoint) const;
  void remove(const StoredCheckpoint& checkpoint) const;

  std::filesystem::path folder_;
  Fence fence_;
};

}  // namespace shardlens::runtime
