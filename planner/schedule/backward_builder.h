// The gradients' half of a training step: BACKWARD in segments, reductions and optimizer steps.
// Private to the planner; every strategy's builder drives it visit by visit.
//
// [Note: rings and own slots]
// Buckets take two reduce slots in turn, in order of their first segment. A reduction works in
// place, and a bucket leaves the ring as late as it can, right before its slot is written again, so
// that its reduction runs beside the backward of the next bucket. A bucket gets a slot of its own
// if it must keep something that the ring would overwrite: the sum over microbatches, a gradient
// that waits for the norm, a parameter used again much later (tied weights), a group that backward
// comes back to. Gradients that go to the host leave both rings for slots of their own there: host
// memory is large, and the device never waits for the host's step.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "planner/schedule/step_builder.h"

namespace shardlens::planner {

/// Builds the backward half of a training step. Call `add_unit` for each BACKWARD visit of the step
/// once, in their order, then `finish`. Borrows the StepBuilder.
class BackwardBuilder {
 public:
  /// Plans the buckets and adds the slots for gradients to `step`.
  explicit BackwardBuilder(StepBuilder& step);

  /// Adds all segments of a unit's backward, with the reductions that they complete. `slot` holds
  /// the unit's parameters; -1: it reads none.
  void add_unit(const Visit& visit, int slot);

  /// Adds the optimizer steps that are still to be done.
  void finish();

 private:
  static constexpr int kNoRing = -1;
  static constexpr size_t kRings = 2;

  struct BucketPlan {
    int group = -1;
    int bucket = -1;
    int segments = 0;     // units that give it gradients in one microbatch
    bool spread = false;  // so far apart that two other buckets begin in between
    bool late = false;    // its group is gathered again, from the masters that a step would change
    int ring = kNoRing;
    int reduce_slot = -1;
    int shard_slot = -1;  // where its reduced gradient waits; -1: in the reduce slot
    int receive_slot = -1;
    int sum_slot = -1;
    int cast_slot = -1;
    int host_slot = -1;    // where a host that steps takes its gradient from
    int master_slot = -1;  // where its masters visit the device

    // State in the microbatch that the pass has come to.
    int microbatch = -1;
    int segments_left = 0;
    bool is_reduced = false;  // and not retired yet
  };

  using SlotCondition = bool (BackwardBuilder::*)(const BucketPlan&) const;

  void plan_buckets();
  void find_spread_buckets();
  void find_late_buckets();
  void assign_rings();
  void add_slots();
  void add_ring_slots(SlotKind kind, int BucketPlan::*slot, SlotCondition takes);
  void add_own_slots(SlotKind kind, int BucketPlan::*slot, SlotCondition takes,
                     bool on_host = false);
  void add_cast_slot();
  void add_norm_slots();
  int64_t slot_bytes(SlotKind kind, const BucketPlan& plan) const;

  /// True if ranks share the bucket; else it is reduced in place.
  bool is_shared(const BucketPlan& plan) const;
  /// True if the bucket's microbatches are added up outside the reduce slot.
  bool has_sum(const BucketPlan& plan) const;
  bool lands_on_host(const BucketPlan&) const { return step_.schedule().steps_on_host(); }
  bool visits_device(const BucketPlan&) const {
    return step_.schedule().offload == Offload::params;
  }
  /// True if the bucket's reduced gradient stays in its slot on the device until the end of the
  /// step.
  bool is_held_on_device(const BucketPlan& plan) const;
  bool receives(const BucketPlan& plan) const;
  bool owns_reduce_slot(const BucketPlan& plan) const;
  bool owns_shard_slot(const BucketPlan& plan) const;
  bool rings_reduce_slot(const BucketPlan& plan) const { return !owns_reduce_slot(plan); }

  void begin(BucketPlan& plan, int microbatch);
  void take_ring(BucketPlan& plan);
  void end(BucketPlan& plan);
  void reduce(BucketPlan& plan);
  void average_over(Channel channel, const BucketPlan& plan, int slot);
  void retire(BucketPlan& plan);
  void copy_to_host(const BucketPlan& plan);
  void accumulate(const BucketPlan& plan);
  void add_to_norm(const BucketPlan& plan, int slot);
  void find_factor();
  void step_optimizer(const BucketPlan& plan);
  void fetch_masters(const BucketPlan& plan);
  /// Copies the stepped parameters of a bucket, which action `last` wrote, to where gathers read
  /// them.
  void publish(const BucketPlan& plan, int last);
  Action action_of(ActionKind kind, const BucketPlan& plan) const;
  /// Returns the slot of the device in which the bucket's gradient lies once it is reduced.
  /// `gradient_slot` returns the slot from which its optimizer step takes it.
  int reduced_slot(const BucketPlan& plan) const;
  int gradient_slot(const BucketPlan& plan) const;
  bool is_last(int microbatch) const { return microbatch + 1 == step_.strategy().microbatches; }

  StepBuilder& step_;
  std::vector<BucketPlan> plans_;                // in order of first segment
  std::vector<std::vector<size_t>> plan_of_;     // by group and bucket
  std::array<BucketPlan*, kRings> residents_{};  // by ring
  std::vector<BucketPlan*> reduced_;             // not retired, the oldest first
  std::vector<BucketPlan*> held_;                // reduced, but not stepped before the end
  std::vector<Action> renewals_;                 // of the device's parameters, after all steps
  int norm_slot_ = -1;
  int host_norm_slot_ = -1;  // where the norm of sums on the host is begun
  int norm_copy_ = -1;       // the action that tells the host the factor
};

}  // namespace shardlens::planner
