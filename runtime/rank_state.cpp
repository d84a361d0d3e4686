#include "runtime/rank_state.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>

#include "profiler/recorder.h"
#include "runtime/check.h"
#include "runtime/scalar_type.h"

namespace shardlens::runtime {

using profiler::Category;

namespace {

at::Tensor zeros(Category category, const std::string& label, at::IntArrayRef sizes,
                 const at::TensorOptions& options) {
  const profiler::Scope scope(category, label);
  return at::zeros(sizes, options);
}

Category category_of(planner::SlotKind kind) {
  switch (kind) {
    case planner::SlotKind::unsharded:
      return Category::unsharded_parameter;
    case planner::SlotKind::reduce:
      return Category::reduce_buffer;
    case planner::SlotKind::gradient_shard:
      return Category::gradient_shard;
    case planner::SlotKind::receive:
      return Category::communication;
  }
  return Category::other;
}

/// What lies between a bucket's parameters and behind them, in a slot that holds the bucket.
std::vector<at::Tensor> gaps_in(const planner::Bucket& bucket, const at::Tensor& slot) {
  std::vector<at::Tensor> gaps;
  int64_t filled = 0;
  const auto add_gap = [&](int64_t end) {
    if (end > filled) gaps.push_back(slot.narrow(0, filled, end - filled));
  };
  for (const planner::BucketEntry& entry : bucket.entries) {
    add_gap(entry.offset);
    filled = entry.offset + entry.numel;
  }
  add_gap(bucket.numel);
  return gaps;
}

}  // namespace

RankState::RankState(const models::ModelSpec& spec, const planner::Schedule& schedule,
                     int rank_in_shards, const c10::Device& device)
    : schedule_(schedule),
      rank_in_shards_(rank_in_shards),
      device_(device),
      places_(spec.parameters.size()) {
  place_parameters();
  allocate();
  make_weights(spec);
  if (!schedule.has_unsharded_slots()) bind_to_masters();
}

void RankState::bind_to_masters() {
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
  const at::TensorOptions fp32 = at::dtype(at::kFloat).device(device_);
  for (const planner::Group& group : schedule_.groups) {
    std::vector<BucketState>& states = buckets_.emplace_back();
    for (const planner::Bucket& bucket : group.buckets) {
      const int64_t numel = bucket.numel / schedule_.shards;
      const std::string name = fmt::format("{} bucket {}", group.name, states.size());
      states.push_back({zeros(Category::parameter_shard, name + " master", {numel}, fp32),
                        zeros(Category::optimizer_state, name + " exp_avg", {numel}, fp32),
                        zeros(Category::optimizer_state, name + " exp_avg_sq", {numel}, fp32)});
    }
  }
  for (const planner::Slot& slot : schedule_.slots) {
    const int64_t numel = slot.bytes / planner::bytes_of(slot.dtype);
    const profiler::Scope scope(category_of(slot.kind), slot.name());
    slots_.push_back(at::empty({numel}, fp32.dtype(scalar_type(slot.dtype))));
  }
  bound_.assign(schedule_.groups.size(), false);
  gradients_.resize(places_.size());
  own_ranges_.resize(schedule_.groups.size());
  for (auto& by_slot : own_ranges_) by_slot.resize(schedule_.slots.size());
  for (const planner::Group& group : schedule_.groups) {
    bucket_views_.emplace_back(group.buckets.size());
  }
  step_count_ = zeros(Category::optimizer_state, "step count", {}, fp32);
}

void RankState::make_weights(const models::ModelSpec& spec) {
  for (size_t i = 0; i < places_.size(); ++i) {
    const Place& place = places_[i];
    const planner::DType dtype = schedule_.groups[place.group].buckets[place.bucket].dtype;
    at::Tensor weight = at::empty({0}, at::dtype(scalar_type(dtype)).device(device_));
    auto* tensor = weight.unsafeGetTensorImpl();
    tensor->set_storage_keep_dtype(c10::Storage(c10::Storage::use_byte_size_t(), 0,
                                                at::DataPtr(nullptr, device_),
                                                /*allocator=*/nullptr, /*resizable=*/false));
    tensor->set_sizes_contiguous(spec.parameters[i].shape);
    weights_.push_back(weight.requires_grad_(true));
  }
}

void RankState::point(int parameter, void* memory, int64_t bytes) const {
  auto* storage = weights_[parameter].storage().unsafeGetStorageImpl();
  storage->set_data_ptr_noswap(at::DataPtr(memory, device_));
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

void RankState::zero_padding(int group, int bucket, int slot) {
  BucketViews& views = bucket_views_[group][bucket];
  if (views.padding_slot != slot) {
    views.padding_slot = slot;
    views.padding = gaps_in(schedule_.groups[group].buckets[bucket], slots_[slot]);
  }
  for (at::Tensor& gap : views.padding) gap.zero_();
}

const std::vector<at::Tensor>& RankState::own_ranges(int group, int slot) {
  std::vector<at::Tensor>& ranges = own_ranges_[group][slot];
  if (!ranges.empty()) return ranges;
  const planner::Group& layout = schedule_.groups[group];
  for (size_t bucket = 0; bucket < layout.buckets.size(); ++bucket) {
    const int64_t numel = buckets_[group][bucket].master.numel();
    const int64_t first = layout.bucket_offset(static_cast<int>(bucket));
    ranges.push_back(slots_[slot].narrow(0, first + rank_in_shards_ * numel, numel));
  }
  return ranges;
}

const at::Tensor& RankState::gradient(int parameter, int slot) {
  View& view = gradients_[parameter];
  if (view.slot == slot) return view.tensor;
  const planner::BucketEntry& entry = places_[parameter].entry;
  view.slot = slot;
  view.tensor = slots_[slot].narrow(0, entry.offset, entry.numel).view(weights_[parameter].sizes());
  return view.tensor;
}

const at::Tensor& RankState::reduced_gradient(int group, int bucket, int slot) {
  View& view = bucket_views_[group][bucket].reduced_gradient;
  if (view.slot == slot) return view.tensor;
  view.slot = slot;
  view.tensor = slots_[slot].narrow(0, 0, buckets_[group][bucket].master.numel());
  return view.tensor;
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
