// How errors of every transport name what was being done. Cold paths only: it allocates.
#pragma once

#include <chrono>
#include <string>

#include "planner/schedule.h"
#include "runtime/comm/communicator.h"

namespace shardlens::runtime {

/// "rank 0, step 37, REDUCE_SCATTER of block3 bucket 1"; the rank's number in the world
std::string to_text(int rank, const Operation& operation);

/// Those that a rank is one of: "ranks 4 to 7", "ranks 1 to 13 in steps of 4".
std::string to_text(const planner::RankSet& ranks, int rank);

/// "60 s", "0.5 s"
std::string to_text(std::chrono::nanoseconds deadline);

}  // namespace shardlens::runtime
