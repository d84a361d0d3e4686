// Keeps recordings that ranks make on a disk of their own host (--profile-dir), and moves them into
// the run's folder when the ranks have ended. If the ranks were killed together with every process
// that could have moved them, the recordings stay for the run's next attempt on that host.
//
//   DIR/NAME-ID/g3/rank0.slp   of attempt 3; ID is the run's, so no other run of that name uses it
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "runtime/checkpoint/fence.h"
#include "runtime/checkpoint/run_directory.h"

namespace shardlens::runtime {

class LocalRecordings {
 public:
  /// Makes the paths of one attempt. `folder` is DIR; if it is empty, ranks record in the run's
  /// folder, and no recording is moved.
  LocalRecordings(const std::filesystem::path& folder, const RunDirectory& run, Fence fence);

  /// Throws std::invalid_argument if no folder can be made in `folder`.
  static void check(const std::filesystem::path& folder);

  /// Returns the file in which a rank of this attempt records. Its folder may be missing.
  std::filesystem::path file(int rank) const;

  /// Moves the rank's recording into the run, if there is one. Throws Failure; then the recording
  /// stays where it was.
  void collect(int rank) const;

  /// Moves recordings that earlier attempts have left, unless the run has a newer one of the rank.
  /// One process per host calls this, before this attempt's ranks record. Returns lines for the
  /// user, even if the disk fails.
  std::vector<std::string> collect_left() const;

 private:
  std::vector<std::filesystem::path> left_recordings() const;
  void move(const std::filesystem::path& file) const;
  void drop(const std::filesystem::path& file) const;

  std::filesystem::path profiles_;  // of the run
  std::filesystem::path own_;       // DIR/NAME-ID; empty: ranks use the run's folder
  Fence fence_;
};

}  // namespace shardlens::runtime
