// When each group's parameters are gathered under fsdp, and in which slots. Private to the planner.
//
// [Note: residency intervals]
// A step uses groups one after the other: forward in unit order, then backward in reverse. Each
// *use* is a run of units. A group is resident over an *interval*: from its ALL_GATHER to its
// RESHARD. Without a reshard after forward, all uses of a group are one interval; otherwise each
// use is its own. An evaluation is the forward half of the same plan, so that both passes agree
// on the slots.
//
// Intervals of groups that are resharded and no larger than the largest block take the slots of a
// ring in turn. Every other group has a slot of its own, which groups share whose intervals cannot
// meet: else one large embedding would make every ring slot as large.
//
// A gather is issued as early as its slot is free, but at most `prefetch_depth` intervals ahead of
// the compute, and never before the gather of an earlier interval.
#pragma once

#include <vector>

#include "planner/step_builder.h"

namespace shardlens::planner {

/// A run of units that read the parameters of one group. In backward a unit that reads none does
/// not count.
struct Use {
  int group = -1;
  int last_unit = -1;
  bool backward = false;
  int interval = -1;
};

struct Interval {
  int group = -1;
  int first_use = -1;
  int last_use = -1;
  int slot = -1;  // index into Schedule::slots
};

/// Of a training step, in order of first use.
struct Residency {
  std::vector<Use> uses;
  std::vector<Interval> intervals;
};

/// Adds the unsharded slots to `step`.
Residency plan_residency(StepBuilder& step, int prefetch_depth);

}  // namespace shardlens::planner
