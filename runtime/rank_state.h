// What one rank keeps from step to step: its range of every bucket's fp32 weights and Adam moments,
// the slots of the schedule, and the weights that autograd sees.
//
// [Note: weights are views that move]
// A weight is one leaf tensor for the whole run. Its memory is not its own: bind() points its
// storage into an unsharded slot (or, where nothing is sharded, into the flat state itself), and
// unbind() empties it. Autograd keeps the tensor object between forward and backward, never the
// memory, and no version counter moves. So a group may lie in another slot in backward than in
// forward, and a slot may be filled by a collective behind autograd's back.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "models/spec.h"
#include "planner/schedule.h"

namespace shardlens::runtime {

/// This rank's range of one bucket: each 1D fp32, [bucket numel / shards].
struct BucketState {
  at::Tensor master;
  at::Tensor exp_avg;
  at::Tensor exp_avg_sq;
};

/// Where one parameter lies.
struct Place {
  int group = -1;
  int bucket = -1;
  planner::BucketEntry entry;
};

class RankState {
 public:
  /// Allocates everything; `rank_in_shards` is this rank's place among schedule.shards. The
  /// schedule must outlive the state.
  RankState(const models::ModelSpec& spec, const planner::Schedule& schedule, int rank_in_shards);

  /// Copies this rank's part of one parameter's start value (fp32, CPU) into the masters.
  void set_parameter(int parameter, const at::Tensor& value);

  /// Points the group's weights at a slot, or at nothing.
  void bind(int group, int slot);
  void unbind(int group);
  bool is_bound(int group) const { return bound_[group]; }

  /// Zeroes what no gradient will fill: the gaps between parameters and the end of the bucket.
  void zero_padding(int group, int bucket, const at::Tensor& gradients) const;

  BucketState& bucket(int group, int bucket) { return buckets_[group][bucket]; }
  const at::Tensor& slot(int index) const { return slots_[index]; }
  const at::Tensor& weight(int parameter) const { return weights_[parameter]; }
  const Place& place(int parameter) const { return places_[parameter]; }

  /// Steps taken, as the fused optimizer wants it: fp32 scalar.
  at::Tensor& step_count() { return step_count_; }

  int64_t state_bytes() const;

 private:
  void place_parameters();
  void allocate();
  void make_weights(const models::ModelSpec& spec);
  /// ddp and single: nothing is sharded, so the weights are the state.
  void bind_to_state();
  void point(int parameter, void* memory, int64_t bytes);

  const planner::Schedule& schedule_;
  int rank_in_shards_;
  std::vector<Place> places_;  // by parameter
  std::vector<std::vector<BucketState>> buckets_;
  std::vector<at::Tensor> slots_;  // 1D, of the slot's dtype
  std::vector<at::Tensor> weights_;
  std::vector<bool> bound_;
  at::Tensor step_count_;
};

}  // namespace shardlens::runtime
