// Steps that use every channel, with random data, and the values that each must give: computed
// plainly over all ranks of the world, without RankSet.
#pragma once

#include <cstdint>
#include <string>

#include "planner/schedule/schedule.h"
#include "runtime/comm/channels.h"

namespace shardlens::tests {

/// Powers of two, so that means are exact in any order of summing.
struct Grid {
  int world_size = 1;
  int shards = 1;
  int regather_shards = 0;  // 0: no regather
};

/// One bucket that is gathered, gathered again, and reduced, over all channels of the grid.
planner::Schedule schedule_over(const Grid& grid);

/// "ok", or the first value that is wrong.
std::string run_steps(const Grid& grid, int rank, const runtime::Channels& channels, uint64_t seed,
                      int steps);

}  // namespace shardlens::tests
