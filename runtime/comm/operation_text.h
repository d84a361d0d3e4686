// How errors of every transport name what was being done. Cold paths only: it allocates.
#pragma once

#include <chrono>
#include <string>

#include "runtime/comm/communicator.h"

namespace shardlens::runtime {

/// "rank 0, step 37, REDUCE_SCATTER of block3 bucket 1"
std::string to_text(int rank, const Operation& operation);

/// "60 s", "0.5 s"
std::string to_text(std::chrono::nanoseconds deadline);

}  // namespace shardlens::runtime
