#include "runtime/rank_state.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "runtime/check.h"
#include "runtime/scalar_type.h"

namespace shardlens::runtime {

RankState::RankState(const models::ModelSpec& spec, const planner::Schedule& schedule,
                     int rank_in_shards)
    : schedule_(schedule), rank_in_shards_(rank_in_shards), places_(spec.parameters.size()) {
  place_parameters();
  allocate();
  make_weights(spec);
  if (schedule.strategy != planner::StrategyKind::fsdp) bind_to_state();
}

void RankState::bind_to_state() {
  for (size_t parameter = 0; parameter < places_.size(); ++parameter) {
    const Place& place = places_[parameter];
    float* base = buckets_[place.group][place.bucket].master.data_ptr<float>();
    point(static_cast<int>(parameter), base + place.entry.offset, place.entry.numel * 4);
  }
  bound_.assign(bound_.size(), true);
}

void RankState::place_parameters() {
  for (size_t group = 0; group < schedule_.groups.size(); ++group) {
    const auto& buckets = schedule_.groups[group].buckets;
    for (size_t bucket = 0; bucket < buckets.size(); ++bucket) {
      for (const planner::BucketEntry& entry : buckets[bucket].entries) {
        places_[entry.parameter] = {static_cast<int>(group), static_cast<int>(bucket), entry};
      }
    }
  }
  for (const Place& place : places_) check(place.group >= 0, "a parameter lies in no bucket");
}

void RankState::allocate() {
  for (const planner::Group& group : schedule_.groups) {
    std::vector<BucketState>& states = buckets_.emplace_back();
    for (const planner::Bucket& bucket : group.buckets) {
      const int64_t numel = bucket.numel / schedule_.shards;
      states.push_back({at::zeros({numel}), at::zeros({numel}), at::zeros({numel})});
    }
  }
  for (const planner::Slot& slot : schedule_.slots) {
    slots_.push_back(
        at::empty({slot.bytes / planner::bytes_of(slot.dtype)}, scalar_type(slot.dtype)));
  }
  bound_.assign(schedule_.groups.size(), false);
  step_count_ = at::zeros({});
}

void RankState::make_weights(const models::ModelSpec& spec) {
  for (const models::ParameterSpec& parameter : spec.parameters) {
    at::Tensor weight = at::empty({0});
    auto* tensor = weight.unsafeGetTensorImpl();
    tensor->set_storage_keep_dtype(c10::Storage(c10::Storage::use_byte_size_t(), 0,
                                                at::DataPtr(nullptr, at::kCPU),
                                                /*allocator=*/nullptr, /*resizable=*/false));
    tensor->set_sizes_contiguous(parameter.shape);
    weights_.push_back(weight.requires_grad_(true));
  }
}

void RankState::point(int parameter, void* memory, int64_t bytes) {
  auto* storage = weights_[parameter].storage().unsafeGetStorageImpl();
  storage->set_data_ptr_noswap(at::DataPtr(memory, at::kCPU));
  storage->set_nbytes(static_cast<size_t>(bytes));
}

void RankState::set_parameter(int parameter, const at::Tensor& value) {
  const Place& place = places_[parameter];
  at::Tensor& master = buckets_[place.group][place.bucket].master;
  const int64_t own_begin = rank_in_shards_ * master.numel();
  const int64_t begin = std::max(place.entry.offset, own_begin);
  const int64_t end = std::min(place.entry.offset + place.entry.numel, own_begin + master.numel());
  if (begin >= end) return;
  const at::Tensor flat = value.reshape({-1});
  master.narrow(0, begin - own_begin, end - begin)
      .copy_(flat.narrow(0, begin - place.entry.offset, end - begin));
}

void RankState::bind(int group, int slot) {
  auto* base = static_cast<char*>(slots_[slot].data_ptr());
  const planner::Group& layout = schedule_.groups[group];
  for (size_t bucket = 0; bucket < layout.buckets.size(); ++bucket) {
    const int64_t bytes = planner::bytes_of(layout.buckets[bucket].dtype);
    const int64_t first = layout.bucket_offset(static_cast<int>(bucket));
    for (const planner::BucketEntry& entry : layout.buckets[bucket].entries) {
      point(entry.parameter, base + (first + entry.offset) * bytes, entry.numel * bytes);
    }
  }
  bound_[group] = true;
}

void RankState::unbind(int group) {
  for (const planner::Bucket& bucket : schedule_.groups[group].buckets) {
    for (const planner::BucketEntry& entry : bucket.entries) point(entry.parameter, nullptr, 0);
  }
  bound_[group] = false;
}

void RankState::zero_padding(int group, int bucket, const at::Tensor& gradients) const {
  const planner::Bucket& layout = schedule_.groups[group].buckets[bucket];
  int64_t filled = 0;
  for (const planner::BucketEntry& entry : layout.entries) {
    if (entry.offset > filled) gradients.narrow(0, filled, entry.offset - filled).zero_();
    filled = entry.offset + entry.numel;
  }
  if (filled < layout.numel) gradients.narrow(0, filled, layout.numel - filled).zero_();
}

int64_t RankState::state_bytes() const {
  int64_t bytes = 0;
  for (const auto& group : buckets_) {
    for (const BucketState& bucket : group) {
      bytes += bucket.master.nbytes() + bucket.exp_avg.nbytes() + bucket.exp_avg_sq.nbytes();
    }
  }
  return bytes;
}

}  // namespace shardlens::runtime
