// The gradients' half of a training step: BACKWARD in segments, reductions and optimizer steps.
// Private to the planner; every strategy's builder drives it unit by unit.
//
// Buckets take two reduce slots in turn, in order of their first segment. A bucket's optimizer
// step comes as late as its slot allows, right before the slot is written again, so that its
// reduction runs beside the backward of the next bucket.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "planner/step_builder.h"

namespace shardlens::planner {

/// Borrows the StepBuilder. Units must come in falling order, each once; then `finish`.
class BackwardBuilder {
 public:
  /// Adds the slots for gradients.
  explicit BackwardBuilder(StepBuilder& step);

  /// All segments of a unit, with the reductions that they complete.
  void add_unit(int unit, const GatheredParameters& parameters);

  /// The optimizer steps still to be done.
  void finish();

 private:
  struct BucketPlan {
    int turn = -1;     // which slots it takes
    int segments = 0;  // units that give it gradients
  };

  /// The slots of one turn and the bucket that holds them.
  struct Turn {
    int64_t bucket_bytes = 0;  // of the largest bucket that takes this turn
    int reduce_slot = -1;
    int shard_slot = -1;
    int receive_slot = -1;

    int group = -1;  // -1: free
    int bucket = -1;
    int segments_left = 0;
    int reduction = -1;
  };

  void plan_turns();
  void add_slots();
  BucketPlan& plan_of(int group, int bucket);
  Turn& acquire(int unit, int group, int bucket);
  void reduce(Turn& turn, int last_backward);
  void step_optimizer(Turn& turn);

  StepBuilder& step_;
  std::vector<std::vector<BucketPlan>> plans_;  // by group and bucket
  std::array<Turn, 2> turns_;
  size_t turns_taken_ = 0;
};

}  // namespace shardlens::planner
