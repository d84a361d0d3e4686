#include "planner/schedule/checkpoints.h"

#include "base/check.h"

namespace shardlens::planner {

bool is_checkpoint_due(const Checkpointing& checkpointing, int64_t step, bool ends_epoch) {
  if (!checkpointing.wanted) return false;
  const int64_t every = checkpointing.every_steps;
  return every > 0 ? step % every == 0 : ends_epoch;
}

ShardPart part_to_write(const Schedule& schedule, const Bucket& bucket, int rank) {
  const int shards = schedule.shards_of(bucket);
  const int64_t holders = schedule.world_size / shards, holder = rank / shards;
  check(rank >= 0 && rank < schedule.world_size && schedule.world_size % shards == 0,
        "a part is asked for of a rank that has none");
  const int64_t numel = schedule.shard_numel(bucket);
  const int64_t begin = numel * holder / holders;
  return {.begin = begin, .numel = numel * (holder + 1) / holders - begin};
}

}  // namespace shardlens::planner
