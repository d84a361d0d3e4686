// Recordings that ranks make on a disk of their host's own (--profile-dir) and that are moved into
// the run's folder when the ranks have ended. Those of ranks that were killed with all that could
// have moved them wait there for the run's next attempt on that host.
//
//   DIR/NAME-ID/g3/rank0.slp   of attempt 3; ID is the run's, so that no other of its name has it
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "runtime/fence.h"
#include "runtime/run_directory.h"

namespace shardlens::runtime {

class LocalRecordings {
 public:
  /// Of one attempt. `folder`: DIR; empty: ranks record in the run's folder, and nothing is moved.
  LocalRecordings(const std::filesystem::path& folder, const RunDirectory& run, Fence fence);

  /// Throws std::invalid_argument where nothing can be made in `folder`.
  static void check(const std::filesystem::path& folder);

  /// Where a rank of this attempt records. Its folder may be missing.
  std::filesystem::path file(int rank) const;

  /// Moves it into the run; does nothing where there is none. Throws Failure, after which it is
  /// where it was.
  void collect(int rank) const;

  /// Moves what attempts before this one have left, unless the run has something newer of the rank.
  /// By one process a host, before this attempt's ranks record. Returns lines for the user, also
  /// where the disk fails.
  std::vector<std::string> collect_left() const;

 private:
  std::vector<std::filesystem::path> left() const;
  void move(const std::filesystem::path& file) const;
  void drop(const std::filesystem::path& file) const;

  std::filesystem::path profiles_;  // of the run
  std::filesystem::path own_;       // DIR/NAME-ID; empty: the run's is used
  Fence fence_;
};

}  // namespace shardlens::runtime
