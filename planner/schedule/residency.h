// Plans when each group's parameters are gathered under fsdp, and in which slots. Private to the
// planner.
//
// [Note: residency intervals]
// A step uses groups one after the other: forward in unit order, then backward in reverse, and so
// on for each microbatch. Each *use* is a run of units. A group is resident over an *interval*:
// from its ALL_GATHER to its RESHARD. Without a reshard after forward, all uses of a group are one
// interval; otherwise each use is its own. An evaluation is the beginning of the same plan, so that
// both passes agree on the slots.
//
// Where fewer ranks keep a copy between them, the first interval of a group ends by keeping this
// rank's part, and all later ones gather those parts.
//
// Intervals of groups that are resharded and no larger than the largest block take the slots of a
// ring in turn. Every other group has a slot outside the ring, shared by groups whose intervals
// cannot meet: else one large embedding would make every ring slot as large.
//
// A gather is issued as early as its slot is free, but at most as many intervals ahead of the
// compute as may be prefetched, and never before the gather of an earlier interval.
#pragma once

#include <vector>

#include "planner/schedule/step_builder.h"

namespace shardlens::planner {

/// A run of consecutive visits to units that read the parameters of one group.
struct GroupUse {
  int group = -1;
  int visits = 0;
  bool backward = false;
  int interval = -1;
};

struct Interval {
  int group = -1;
  int first_use = -1;
  int last_use = -1;
  int slot = -1;           // index into Schedule::slots
  bool regathers = false;  // from the parts that fewer ranks have kept
  int kept_slot = -1;      // where its part is kept when it ends; -1: nowhere
};

/// The uses and intervals of a training step, in order of first use.
struct Residency {
  std::vector<GroupUse> uses;
  std::vector<Interval> intervals;
};

/// Returns how many gathers may run ahead of the compute when `use` is gathered for.
int prefetch_depth(const Strategy& strategy, const GroupUse& use);

/// Plans the residency of `pass`. Adds the unsharded slots to `step` and, if a training step keeps
/// parts of groups, the slots for those parts behind them.
Residency plan_residency(StepBuilder& step, Pass pass);

}  // namespace shardlens::planner
