// Starts the ranks of a job as processes, watches them, and ends all of them when one ends badly.
#pragma once

#include <optional>
#include <string>

#include "runtime/job.h"
#include "runtime/run_directory.h"

namespace shardlens::runtime {

struct Outcome {
  bool ok = true;
  std::string reason;                     // why not: names rank, step and operation
  bool is_wrong_use = false;              // the user's to mend
  int signal = 0;                         // SIGINT or SIGTERM: the user's wish
  std::optional<int> out_of_memory_rank;  // the one that the reason is about
};

/// Blocks until every rank has ended. result.json is there afterwards, well or badly.
Outcome launch(const Job& job, const RunDirectory& directory);

}  // namespace shardlens::runtime
