// Checks the rules of a schedule, in four parts that build on each other; `validate` runs all of
// them in this order. Private to the planner. Each throws std::logic_error with the rule and, if it
// concerns one action, the text of its line.
#pragma once

#include <string>

#include "planner/schedule/schedule.h"

namespace shardlens::planner {

/// Checks ranks, names, buckets and slots, without looking at the actions.
void check_tables(const Schedule& schedule);

/// Checks each action by itself: its indices, and the rules of its kind.
void check_actions(const Schedule& schedule);

/// Checks the order of units, and the life of buckets.
void check_order(const Schedule& schedule);

/// Checks the slots. Two accesses to a slot, one of them a write, must be ordered by streams and
/// waits (the order of the list means nothing to two streams), and each access must find what it
/// needs in the slot.
void check_slots(const Schedule& schedule);

/// Throws std::logic_error for a broken rule. `action` -1: the rule concerns the whole schedule.
[[noreturn]] void fail_rule(const Schedule& schedule, int action, const std::string& rule);

}  // namespace shardlens::planner
