// One builder a family of strategies; build_schedule chooses among them and validates what they
// give. Private to the planner.
#pragma once

#include "models/spec.h"
#include "planner/schedule.h"

namespace shardlens::planner {

/// Units read their parameters from unsharded slots: for fsdp and hsdp, and for ddp and single
/// where a cast copy of the masters is what computes (one shard: cast, never gathered).
Schedule build_fsdp(const models::ModelSpec& spec, const Strategy& strategy, Pass pass);

/// For ddp and single in fp32: every rank's masters are whole, and are the weights.
Schedule build_ddp(const models::ModelSpec& spec, const Strategy& strategy, Pass pass);

}  // namespace shardlens::planner
