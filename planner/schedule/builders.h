// One builder per family of strategies; build_schedule chooses among them and validates what they
// return. Private to the planner.
#pragma once

#include "models/spec.h"
#include "planner/schedule/schedule.h"

namespace shardlens::planner {

/// Builds schedules whose units read their parameters from unsharded slots: for fsdp and hsdp, and
/// for ddp and single where units compute with a cast copy of the masters (one shard: the masters
/// are cast, never gathered).
Schedule build_fsdp(const models::ModelSpec& spec, const Strategy& strategy, Pass pass);

/// Builds schedules for ddp and single in fp32: every rank's masters are whole, and are the
/// weights.
Schedule build_ddp(const models::ModelSpec& spec, const Strategy& strategy, Pass pass);

}  // namespace shardlens::planner
