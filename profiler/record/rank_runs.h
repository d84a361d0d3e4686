// Records a command as several ranks of a world that is not there, and finds the fullest of them.
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
  std::vector<Role> roles = {};        // of --ranks roles: which ranks each stands for
  bool has_all_roles = true;           // false: more ranks differ than are run
  std::vector<int> exit_codes = {};    // of each run
  int left_out = 0;                    // ranks that were wanted and not run
  bool was_interrupted = false;

  /// Returns the exit code of all: 3 if one is 3; else the first of a program that failed; else 5,
  /// 4 or 0.
  int exit_code() const;
  /// Returns the rank that takes most of the GPU; one that has run out of memory takes more than
  /// any other. Null if there is none.
  const JudgedRank* fullest() const;
};

/// Runs the ranks that `options.ranks` wants, the first one alone: it tells how large the world is,
/// which groups it has, and how many fit this host at once. Progress goes to stderr.
RankRuns run_ranks(const RecordOptions& options, const PythonProgram& program,
                   const RecordFiles& files);

/// Returns the ranks that were run in a table, the fullest first, and what was assumed.
std::string ranks_text(const RankRuns& runs);

}  // namespace shardlens::profiler
