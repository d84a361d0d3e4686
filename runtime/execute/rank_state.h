// Holds what one rank keeps from step to step: its range of every bucket's fp32 weights and
// moments, the slots of the schedule, and the weights that autograd sees. Offloaded parts are in
// host memory, pinned if the device copies them.
//
// [Note: weights are views that move]
// A weight is one leaf tensor for the whole run, but its memory is not its own: bind() points its
// storage into an unsharded slot (or, if there is none, into the masters themselves), and unbind()
// empties it. Autograd keeps the tensor object between forward and backward, never the memory, and
// no version counter moves. So a group may be in a different slot in backward than in forward, and
// a slot may be filled by a collective that autograd does not see.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <unordered_map>
#include <vector>

#include "models/spec.h"
#include "planner/schedule/schedule.h"
#include "planner/step/step.h"
#include "runtime/execute/optimizer.h"

namespace shardlens::runtime {

using StateRange = planner::StateRange;

/// Describes a copy to be made: `to` of one dtype, `from` of the same or another; both 1D of the
/// same length.
struct TensorCopy {
  at::Tensor to;
  at::Tensor from;
};

class RankState {
 public:
  /// Allocates everything for `rank` of schedule.world_size. The schedule must outlive the state.
  RankState(const models::ModelSpec& spec, const planner::Schedule& schedule, int rank,
            const c10::Device& device, const planner::OptimizerOptions& optimizer = {});

  const c10::Device& device() const { return device_; }

  /// Copies this rank's part of one parameter's start value (fp32, CPU) into the masters.
  void set_parameter(int parameter, const at::Tensor& value);

  /// Returns all ranges of parameters that this rank holds, bucket by bucket. A caller that writes
  /// to the masters there must then call renew_casts().
  std::vector<StateRange> ranges() const;
  void renew_casts();

  /// Points the group's weights at a slot. unbind() leaves them without memory.
  void bind(int group, int slot);
  void unbind(int group);
  bool is_bound(int group) const { return bound_[group]; }

  /// Zeroes the parts that no gradient will fill: the gaps between parameters and the bucket's end.
  void zero_padding(int group, int bucket, int slot);

  /// Returns the copies that fill this rank's part of an unsharded slot: from its masters, or from
  /// the part that all share in `kept_slot` (-1: none).
  const std::vector<TensorCopy>& gather_copies(int group, int slot, int kept_slot);
  /// Returns the copies that keep a part of an unsharded slot in `kept_slot`.
  const std::vector<TensorCopy>& keep_copies(int group, int slot, int kept_slot);
  /// Returns the place of a parameter's gradient in its bucket's reduce slot, in the parameter's
  /// shape.
  const at::Tensor& gradient(int parameter, int slot);
  /// Returns a slot's part for this rank's range: as many elements as the bucket's masters have.
  at::Tensor shard_in(int group, int bucket, int slot);

  /// These allocate and free the memory of a slot that does not last.
  void begin_slot(int index);
  void end_slot(int index);

  BucketState& bucket(int group, int bucket) { return buckets_[group][bucket]; }
  const at::Tensor& slot(int index) const { return slots_[index]; }
  const at::Tensor& weight(int parameter) const { return weights_[parameter]; }
  /// Returns the parameter whose weight this tensor is, or nothing.
  std::optional<int> find_weight(const at::Tensor& tensor) const;

  /// Counts the steps taken, as the fp32 scalar that the fused optimizer needs.
  at::Tensor& step_count() { return step_count_; }

 private:
  /// Caches a view of one slot, since making a view costs as much as launching a kernel. A bucket
  /// uses the same slots in every step.
  struct View {
    int slot = -1;
    at::Tensor tensor;
  };
  struct BucketViews {
    std::vector<View> shards;
    int padding_slot = -1;
    std::vector<at::Tensor> padding;
  };
  using CopyKey = std::array<int, 3>;  // group, slot, kept slot

  void allocate_buckets(const planner::OptimizerOptions& optimizer);
  void allocate_slots();
  void make_weights(const models::ModelSpec& spec);
  /// Binds the weights to the masters, which are whole if there are no unsharded slots.
  void bind_to_masters();
  void point_weight(int parameter, void* memory, int64_t bytes) const;
  /// Divides a bucket in an unsharded slot into `parts` equal parts, and returns the one at
  /// `index`.
  at::Tensor part_of(int group, int bucket, int slot, int parts, int index) const;
  std::vector<TensorCopy> kept_parts(int group, int slot, int kept_slot) const;

  const planner::Schedule& schedule_;
  int rank_;
  c10::Device device_;
  std::vector<planner::ParameterPlace> places_;  // by parameter
  std::vector<std::vector<BucketState>> buckets_;
  std::vector<at::Tensor> slots_;  // 1D, of the slot's dtype; those of parameters in bytes
  std::vector<bool> has_memory_;   // by slot
  std::vector<at::Tensor> weights_;
  std::unordered_map<const void*, int> parameters_;  // by weight
  std::vector<bool> bound_;
  at::Tensor step_count_;

  std::map<CopyKey, std::vector<TensorCopy>> gather_copies_;
  std::map<CopyKey, std::vector<TensorCopy>> keep_copies_;
  std::vector<View> gradients_;  // by parameter
  std::vector<std::vector<BucketViews>> bucket_views_;
};

}  // namespace shardlens::runtime
