// Writes operations as text, in the same words for the errors of every transport. Only for cold
// paths: it allocates.
#pragma once

#include <chrono>
#include <string>

#include "planner/schedule/schedule.h"
#include "runtime/comm/communicator.h"

namespace shardlens::runtime {

/// Returns "rank 0, step 37, REDUCE_SCATTER of block3 bucket 1", with the rank's number in the
/// world.
std::string to_text(int rank, const Operation& operation);

/// Returns the set of ranks that a rank belongs to: "ranks 4 to 7", "ranks 1 to 13 in steps of 4".
std::string to_text(const planner::RankSet& ranks, int rank);

/// Returns "60 s", or "0.5 s".
std::string to_text(std::chrono::nanoseconds deadline);

}  // namespace shardlens::runtime
