// When a rank copies its state for a checkpoint, and which part of it: the runtime writes so, the
// planner counts so.
#pragma once

#include <cstdint>

#include "planner/schedule.h"
#include "planner/strategy.h"

namespace shardlens::planner {

/// After so many steps.
bool is_checkpoint_due(const Checkpointing& checkpointing, int64_t step, bool ends_epoch);

/// Elements of a bucket's shard.
struct ShardPart {
  int64_t begin = 0;
  int64_t numel = 0;
};

/// What a rank writes of its shard: where several ranks hold the same one, its share. The last rank
/// has the largest.
ShardPart part_to_write(const Schedule& schedule, const Bucket& bucket, int rank);

}  // namespace shardlens::planner
