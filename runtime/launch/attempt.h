// Writes what an attempt of a run leaves in the run's folder at its begin and at its end. Our
// supervisor calls these functions, or rank 0 if another launcher has started the ranks.
#pragma once

#include <vector>

#include "runtime/checkpoint/local_recordings.h"
#include "runtime/launch/events.h"
#include "runtime/launch/launcher.h"
#include "runtime/train/resume.h"

namespace shardlens::runtime {

/// Fences off the attempts before this one and records its begin. If `goes_on`, the run goes on
/// from its newest checkpoint. Throws as resume does.
Resumption begin_attempt(Job& job, const RunDirectory& directory, EventLog& events, bool goes_on,
                         VerificationTime verified);

/// Returns where the ranks of this attempt record.
LocalRecordings recordings_of(const Job& job, const RunDirectory& directory);

/// Moves what these ranks, which have ended, recorded on this host into the run's folder. If the
/// disk fails, it says so on standard error and changes nothing about the run.
void collect_recordings(const Job& job, const RunDirectory& directory,
                        const std::vector<int>& ranks);

/// Prints on standard error what held the memory of a rank that ran out of it, as `shardlens
/// profile report` tells it. Does nothing if that rank was not recorded.
void show_memory(const Job& job, const RunDirectory& directory, int rank);

/// Adds an event that tells how the attempt has ended.
void tell_end(const Job& job, EventLog& events, const Outcome& outcome);

/// Writes result.json, unless the run has finished: rank 0 has written it then. If the disk fails,
/// that is added to the outcome's reason.
void write_unfinished(const Job& job, const RunDirectory& directory, Outcome& outcome);

}  // namespace shardlens::runtime
