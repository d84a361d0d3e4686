// Lets an unfinished run go on: chooses the checkpoint it starts from, tells the user of it, and
// refuses what cannot go on. The launcher does it, before any rank starts.
#pragma once

#include <string>
#include <vector>

#include "runtime/checkpoint/run_directory.h"
#include "runtime/train/job.h"

namespace shardlens::runtime {

/// Throws std::invalid_argument if the disk of the storage has no room for a checkpoint.
void expect_room_for_checkpoints(const Job& job);

struct Resumption {
  int64_t step = 0;                  // the step that it goes on from
  std::vector<std::string> damaged;  // a line for each checkpoint that was passed over
  std::vector<std::string> lines;    // for the user; includes `damaged`
};

/// Says who reads every byte of the checkpoint that a run goes on from.
enum class VerificationTime {
  before,      // the caller of resume, inside it
  while_read,  // the ranks, as they copy it (checkpoint_reader.h), if nothing is wrong at a glance
};

/// Chooses the newest checkpoint that verifies, sets job.resume and job.attempt.verifies, and takes
/// the run over; a run without checkpoints starts anew. The attempt that goes on must have begun.
/// Throws Failure if the disk fails, and std::invalid_argument, with nothing touched, if all
/// checkpoints are damaged, or the newest is of another model.
Resumption resume(Job& job, const RunDirectory& directory, VerificationTime verified);

}  // namespace shardlens::runtime
