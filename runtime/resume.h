// Lets an unfinished run go on: which checkpoint it starts from, what the user is told of it, and
// what is refused. Done by the launcher, before any rank starts.
#pragma once

#include <string>
#include <vector>

#include "runtime/job.h"
#include "runtime/run_directory.h"

namespace shardlens::runtime {

/// Throws std::invalid_argument where the disk of the storage has no room for a checkpoint.
void expect_room_for_checkpoints(const Job& job);

struct Resumption {
  int64_t step = 0;                  // that it goes on from
  std::vector<std::string> damaged;  // a line for each checkpoint that was passed over
  std::vector<std::string> lines;    // for the user, those among them
};

/// Who reads every byte of the checkpoint that a run goes on from.
enum class Verified {
  before,      // whoever calls, here
  while_read,  // the ranks, as they copy it (checkpoint_reader.h), if nothing is wrong at a glance
};

/// Chooses the newest checkpoint that verifies, sets job.resume and job.attempt.verifies, and takes
/// the run over; a run without checkpoints starts anew. The attempt that goes on has begun. Throws
/// Failure where the disk fails, and std::invalid_argument, with nothing touched, where all
/// checkpoints are damaged, or the newest is of another model.
Resumption resume(Job& job, const RunDirectory& directory, Verified verified);

}  // namespace shardlens::runtime
