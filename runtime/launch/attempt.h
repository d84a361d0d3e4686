// Writes what an attempt leaves in the run's folder when it begins and when it ends. Our
// supervisor calls these functions, or rank 0 does if another launcher has started the ranks.
#pragma once

#include <vector>

#include "runtime/checkpoint/local_recordings.h"
#include "runtime/launch/events.h"
#include "runtime/launch/launcher.h"
#include "runtime/train/resume.h"

namespace shardlens::runtime {

/// Fences off the attempts before this one and records its start. If `goes_on`, the run resumes
/// from its newest checkpoint, and an attempt that left no word of its end is recorded as lost.
/// Throws as resume does.
Resumption begin_attempt(Job& job, const RunDirectory& directory, EventLog& events, bool goes_on,
                         VerificationTime verified);

/// Returns where the ranks of this attempt record.
LocalRecordings recordings_of(const Job& job, const RunDirectory& directory);

/// Moves the recordings that these ranks, which have ended, made on this host into the run's
/// folder. If the disk fails, it warns on standard error; the run is not affected.
void collect_recordings(const Job& job, const RunDirectory& directory,
                        const std::vector<int>& ranks);

/// Prints on standard error what held the memory of a rank that ran out of memory, as `shardlens
/// profile report` does. Does nothing if that rank was not recorded.
void show_memory(const Job& job, const RunDirectory& directory, int rank);

/// Returns the event that says how the attempt ended.
RunEvent end_of(const Job& job, const Outcome& outcome);

/// Writes result.json, unless the run has finished: then rank 0 has written it. An error of the
/// disk is added to the outcome's reason.
void write_unfinished(const Job& job, const RunDirectory& directory, Outcome& outcome);

}  // namespace shardlens::runtime
