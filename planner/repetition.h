// Finds what a step of many microbatches does again and again, so that its schedule is as long for
// ten thousand of them as for ten. Private to the planner.
//
// [Note: why a round stands for those behind it]
// Builders go forward, and what they decide depends on what is in the slots, and on how far they
// may look ahead: by as many gathers as are prefetched. Behind the first microbatches and before
// the last ones both are the same in every round; a round is as many microbatches as the ring of
// unsharded slots takes until a gather falls on its slot again. So a step of few microbatches is
// built, three rounds that are equal but for their numbers are looked for in it, and one of them is
// kept, with the count that makes up for the rest. Where there are none, all of the step is built.
#pragma once

#include <functional>
#include <optional>

#include "planner/schedule.h"

namespace shardlens::planner {

using BuildMicrobatches = std::function<Schedule(int microbatches)>;

/// Microbatches from number `first` on that are done as those before them are.
struct Round {
  int first = 0;
  int microbatches = 0;
};

/// As few microbatches as have all that is in a step of more, and the round to be done again.
struct FewMicrobatches {
  int count = 0;
  std::optional<Round> round;  // none: they are all of the step
};

/// `build` makes training steps.
FewMicrobatches few_that_stand_for(int microbatches, const BuildMicrobatches& build);

/// Makes a training step of `few` one of `microbatches`. Throws std::invalid_argument where the ids
/// of its actions would leave their type.
Schedule repeated(Schedule schedule, const FewMicrobatches& few, int microbatches);

}  // namespace shardlens::planner
