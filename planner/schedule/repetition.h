// Finds the part that a step of many microbatches repeats, so that its schedule is as long for ten
// thousand microbatches as for ten. Private to the planner.
//
// [Note: why a round stands for those behind it]
// Builders go forward, and their decisions depend on the content of the slots, and on how far they
// may look ahead: by as many gathers as are prefetched. After the first microbatches and
// before the last ones both are the same in every round; a round is as many microbatches as the
// ring of unsharded slots takes until a gather falls on its slot again. So a step of few
// microbatches is built and searched for three rounds that are equal but for their numbers. One of
// them is kept, with the count that makes up for the rest. If there are no such rounds, the whole
// step is built.
#pragma once

#include <functional>
#include <optional>

#include "planner/schedule/schedule.h"

namespace shardlens::planner {

using ScheduleBuilder = std::function<Schedule(int microbatches)>;

/// A round of microbatches, from number `first` on, that repeat those before them.
struct Round {
  int first = 0;
  int microbatches = 0;
};

/// The fewest microbatches whose step has everything that a longer step has, and the round to be
/// repeated.
struct FewMicrobatches {
  int count = 0;
  std::optional<Round> round;  // none: they are the whole step
};

/// Finds them for a step of `microbatches`. `build` makes training steps.
FewMicrobatches few_that_stand_for(int microbatches, const ScheduleBuilder& build);

/// Turns a training step of `few` into one of `microbatches`. Throws std::invalid_argument if the
/// ids of its actions would overflow their type.
Schedule repeated(Schedule schedule, const FewMicrobatches& few, int microbatches);

}  // namespace shardlens::planner
