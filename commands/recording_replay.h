// Replays a recording through the planner's model of the allocator, for `shardlens record`.
#pragma once

#include "profiler/record/judged_rank.h"

namespace shardlens {

/// Finds what the requests of a recording lead to with other addresses, and without a limit where
/// the allocator had to give memory back. From PyTorch 2.12 on addresses decide nothing, so the
/// recording is read only if there were retries.
profiler::Replays replays_of(const profiler::ReplayedRun& run);

}  // namespace shardlens
