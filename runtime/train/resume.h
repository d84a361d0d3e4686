// Resumes an unfinished run: chooses the checkpoint to start from, tells the user which one it is,
// and refuses runs that cannot resume. The launcher does this before any rank starts.
#pragma once

#include <string>
#include <vector>

#include "runtime/checkpoint/run_directory.h"
#include "runtime/train/job.h"

namespace shardlens::runtime {

/// Throws std::invalid_argument if the storage's disk has no room for a checkpoint.
void expect_room_for_checkpoints(const Job& job);

struct Resumption {
  int64_t step = 0;                  // the step that it resumes from
  std::vector<std::string> damaged;  // a line for each checkpoint that was passed over
  std::vector<std::string> lines;    // for the user; includes `damaged`
};

/// Says when every byte of the checkpoint that a run resumes from is read.
enum class VerificationTime {
  before,      // inside resume, by its caller
  while_read,  // by the ranks, as they copy it (checkpoint_reader.h), if sizes show no fault
};

/// Chooses the newest checkpoint that verifies, sets job.resume and job.attempt.verifies, and takes
/// the run over; a run without checkpoints starts from the beginning. The attempt that resumes must
/// have begun. Throws Failure if the disk fails, and std::invalid_argument, with nothing touched,
/// if all checkpoints are damaged, or the newest is of another model.
Resumption resume(Job& job, const RunDirectory& directory, VerificationTime verified);

}  // namespace shardlens::runtime
