// One builder a family of strategies; build_schedule chooses among them and validates what they
// give. Private to the planner.
#pragma once

#include "models/spec.h"
#include "planner/schedule.h"

namespace shardlens::planner {

/// How many gathers may run ahead of the compute; the prefetch ring has one slot more.
constexpr int kPrefetchDepth = 1;

/// Units read their parameters from unsharded slots: for fsdp, and for ddp and single where a cast
/// copy of the masters is what computes (one shard: cast, never gathered).
Schedule build_fsdp(const models::ModelSpec& spec, const Strategy& strategy, Pass pass,
                    int prefetch_depth = kPrefetchDepth);

/// For ddp and single in fp32: every rank's masters are whole, and are the weights.
Schedule build_ddp(const models::ModelSpec& spec, const Strategy& strategy, Pass pass);

}  // namespace shardlens::planner
