// Rules by which the runtime writes checkpoints and the planner counts them: after which steps a
// rank copies its state, and which part.
#pragma once

#include <cstdint>

#include "planner/config/checkpointing.h"
#include "planner/schedule/schedule.h"

namespace shardlens::planner {

/// True if a checkpoint is due after `step` steps. `ends_epoch`: that step was the last of an
/// epoch.
bool is_checkpoint_due(const Checkpointing& checkpointing, int64_t step, bool ends_epoch);

/// A range of a bucket's shard, in elements.
struct ShardPart {
  int64_t begin = 0;
  int64_t numel = 0;
};

/// Returns the part of its shard that a rank writes. If several ranks hold the same shard, each
/// writes its share, and the last rank has the largest.
ShardPart part_to_write(const Schedule& schedule, const Bucket& bucket, int rank);

}  // namespace shardlens::planner
