// Records a command as several ranks of a simulated world, and finds the rank that takes most
// memory.
#pragma once

#include <string>
#include <vector>

#include "profiler/record/judged_rank.h"
#include "profiler/record/python_program.h"
#include "profiler/record/record_options.h"
#include "profiler/record/recorder_files.h"
#include "profiler/record/roles.h"

namespace shardlens::profiler {

struct RankRuns {
  int world_size = 0;                  // 0: no rank has left a recording
  std::vector<JudgedRank> ranks = {};  // by rank
  std::vector<Role> roles = {};        // with --ranks roles: which ranks each stands for
  bool has_all_roles = true;           // false: more ranks differ than were run
  std::vector<int> exit_codes = {};    // of each run
  int left_out = 0;                    // ranks that were wanted but not run
  bool was_interrupted = false;

  /// Returns the exit code of all runs: 3 if one is 3; else that of the first program that failed;
  /// else 5, 4 or 0.
  int exit_code() const;
  /// Returns the rank that takes most of the GPU; a rank that ran out of memory counts as taking
  /// more than any other. Null if there is none.
  const JudgedRank* fullest() const;
};

/// Runs the ranks that `options.ranks` wants. The first one runs alone: it tells the world size,
/// the groups, and how many processes fit this host at once. Progress goes to stderr.
RankRuns run_ranks(const RecordOptions& options, const PythonProgram& program,
                   const RecordFiles& files, const ReplayRun& replay);

/// Returns a table of the ranks that were run, largest first, and what was assumed.
std::string ranks_text(const RankRuns& runs);

}  // namespace shardlens::profiler
