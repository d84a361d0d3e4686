// What an attempt of a run leaves in its folder at its begin and its end, whoever has started the
// ranks: our supervisor tells it, or rank 0 of those that another launcher has started.
#pragma once

#include <vector>

#include "runtime/events.h"
#include "runtime/launcher.h"
#include "runtime/local_recordings.h"
#include "runtime/resume.h"

namespace shardlens::runtime {

/// Fences the attempts before it; an unfinished run goes on from its newest checkpoint. Throws as
/// resume does.
Resumption begin_attempt(Job& job, const RunDirectory& directory, EventLog& events, bool goes_on,
                         Verified verified);

/// Where its ranks record.
LocalRecordings recordings_of(const Job& job, const RunDirectory& directory);

/// Moves what these ranks, which have ended, recorded on this host into the run's folder. A disk
/// that fails is told on standard error: the run is as it was.
void collect_recordings(const Job& job, const RunDirectory& directory,
                        const std::vector<int>& ranks);

/// Where a rank that ran out of memory was recorded: what held it, as `shardlens profile report`
/// has it, on standard error.
void show_memory(const Job& job, const RunDirectory& directory, int rank);

/// Tells how it has ended.
void tell_end(const Job& job, EventLog& events, const Outcome& outcome);

/// Leaves result.json, which rank 0 has written where the run is finished. A disk that fails is
/// added to the reason.
void write_result(const Job& job, const RunDirectory& directory, Outcome& outcome);

}  // namespace shardlens::runtime
