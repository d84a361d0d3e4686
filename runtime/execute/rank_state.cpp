#include "runtime/execute/rank_state.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "planner/schedule/pinned_blocks.h"
#include "profiler/recorder/recorder.h"
#include "runtime/comm/scalar_type.h"
#include "runtime/execute/pinned_memory.h"

namespace shardlens::runtime {

using profiler::Category;

namespace {

at::Tensor zeros(Category category, const std::string& label, at::IntArrayRef sizes,
                 const at::TensorOptions& options) {
  const profiler::Scope scope(category, label);
  return at::zeros(sizes, options);
}

/// Returns a tensor whose storage can be pointed at any memory.
at::Tensor without_memory(at::IntArrayRef sizes, at::ScalarType dtype, const c10::Device& device) {
  at::Tensor tensor = at::empty({0}, at::dtype(dtype).device(device));
  auto* const described = tensor.unsafeGetTensorImpl();
  described->set_storage_keep_dtype(c10::Storage(c10::Storage::use_byte_size_t(), 0,
                                                 at::DataPtr(nullptr, device),
                                                 /*allocator=*/nullptr, /*resizable=*/false));
  described->set_sizes_contiguous(sizes);
  return tensor;
}

void point(const at::Tensor& tensor, at::DataPtr memory, size_t bytes) {
  auto* const storage = tensor.storage().unsafeGetStorageImpl();
  storage->set_data_ptr_noswap(std::move(memory));
  storage->set_nbytes(bytes);
}

/// Returns the dtype of a slot's elements: bytes for parameters, because one slot may hold several
/// dtypes.
at::ScalarType element_of(const planner::Slot& slot) {
  const bool holds_parameters =
      slot.kind == planner::SlotKind::unsharded || slot.kind == planner::SlotKind::kept_shard;
  return holds_parameters ? at::kByte : scalar_type(slot.dtype);
}

/// Returns the gaps between a bucket's parameters, and after the last, in a slot that holds them.
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

/// Holds what an offload keeps for every bucket: masters, and their casts if parameters have
/// another dtype. The memory is pinned if a device copies it.
class HostShards {
 public:
  HostShards(const planner::Schedule& schedule, bool has_device)
      : schedule_(schedule),
        has_device_(has_device),
        masters_(Category::parameter_shard, "masters",
                 planner::pinned_totals(schedule).masters_bytes),
        casts_(Category::parameter_shard, "parameters",
               planner::pinned_totals(schedule).parameters_bytes) {}

  at::Tensor master(const planner::Bucket& bucket, const std::string& name) {
    const bool pinned = has_device_ && planner::pins_master(schedule_, bucket);
    return make(pinned ? &masters_ : nullptr, name + " master", bucket, planner::kMasterDType);
  }

  at::Tensor cast(const planner::Bucket& bucket, const std::string& name,
                  const at::Tensor& master) {
    if (!planner::has_host_cast(bucket)) return master;
    return make(has_device_ ? &casts_ : nullptr, name + " parameters", bucket, bucket.dtype);
  }

 private:
  at::Tensor make(PinnedMemory* pinned, const std::string& name, const planner::Bucket& bucket,
                  DType dtype) {
    const int64_t numel = schedule_.shard_numel(bucket);
    if (pinned != nullptr) return pinned->take(numel, scalar_type(dtype));
    return zeros(Category::parameter_shard, name, {numel}, at::dtype(scalar_type(dtype)));
  }

  const planner::Schedule& schedule_;
  const bool has_device_;
  PinnedMemory masters_;
  PinnedMemory casts_;
};

}  // namespace

RankState::RankState(const models::ModelSpec& spec, const planner::Schedule& schedule, int rank,
                     const c10::Device& device, const planner::OptimizerOptions& optimizer)
    : schedule_(schedule), rank_(rank), device_(device), places_(planner::places_of(schedule)) {
  check(rank >= 0 && rank < schedule.world_size, "a rank outside its world");
  check(places_.size() == spec.parameters.size(), "a parameter is in no bucket");
  allocate_buckets(optimizer);
  allocate_slots();
  make_weights(spec);
  if (!schedule.has_unsharded_slots()) bind_to_masters();
}

void RankState::bind_to_masters() {
  for (size_t parameter = 0; parameter < places_.size(); ++parameter) {
    const planner::ParameterPlace& place = places_[parameter];
    float* base = buckets_[place.group][place.bucket].master.data_ptr<float>();
    point_weight(static_cast<int>(parameter), base + place.entry.offset, place.entry.numel * 4);
  }
  bound_.assign(bound_.size(), true);
}

void RankState::allocate_buckets(const planner::OptimizerOptions& optimizer) {
  const bool on_host = schedule_.offload != planner::Offload::none;
  const at::TensorOptions device = at::dtype(at::kFloat).device(device_);
  const at::TensorOptions moments = schedule_.steps_on_host() ? device.device(at::kCPU) : device;
  HostShards host(schedule_, device_.is_cuda());
  for (const planner::Group& group : schedule_.groups) {
    std::vector<BucketState>& states = buckets_.emplace_back();
    for (const planner::Bucket& bucket : group.buckets) {
      const int64_t numel = schedule_.shard_numel(bucket);
      const std::string name = fmt::format("{} bucket {}", group.name, states.size());
      BucketState& state = states.emplace_back();
      state.master = on_host ? host.master(bucket, name)
                             : zeros(Category::parameter_shard, name + " master", {numel}, device);
      state.cast = on_host ? host.cast(bucket, name, state.master) : state.master;
      state.parameters = state.cast;
      if (schedule_.offload == planner::Offload::optimizer) {
        state.parameters = zeros(Category::parameter_shard, name + " parameters", {numel},
                                 device.dtype(scalar_type(bucket.dtype)));
      }
      if (bucket.frozen) continue;
      for (const char* moment : moments_of(optimizer)) {
        state.moments.push_back(
            zeros(Category::optimizer_state, name + " " + moment, {numel}, moments));
      }
    }
    bucket_views_.emplace_back(group.buckets.size());
  }
  step_count_ = zeros(Category::optimizer_state, "step count", {}, moments);
}

void RankState::allocate_slots() {
  PinnedMemory pinned(Category::gradient_shard, "gradients",
                      planner::pinned_totals(schedule_).gradients_bytes);
  for (const planner::Slot& slot : schedule_.slots) {
    const at::ScalarType element = element_of(slot);
    const auto element_bytes = static_cast<int64_t>(c10::elementSize(element));
    check(slot.bytes % element_bytes == 0, "a slot ends within an element");
    const int64_t numel = slot.bytes / element_bytes;
    has_memory_.push_back(slot.lasts());
    if (planner::is_pinned(slot) && device_.is_cuda()) {
      check(slot.lasts(), "a pinned slot has no memory of its own");
      slots_.push_back(pinned.take(numel, element));
      continue;
    }
    const profiler::Scope scope(planner::category_of(slot.kind), slot.name());
    const c10::Device device = slot.on_host ? c10::Device(at::kCPU) : device_;
    slots_.push_back(slot.lasts() ? at::empty({numel}, at::dtype(element).device(device))
                                  : without_memory({numel}, element, device));
  }
  check(slots_.size() == schedule_.slots.size(), "a slot of the schedule has no tensor");
  bound_.assign(schedule_.groups.size(), false);
  gradients_.resize(places_.size());
}

void RankState::make_weights(const models::ModelSpec& spec) {
  for (size_t i = 0; i < places_.size(); ++i) {
    const planner::ParameterPlace& place = places_[i];
    const planner::Bucket& bucket = schedule_.groups[place.group].buckets[place.bucket];
    at::Tensor weight =
        without_memory(spec.parameters[i].shape, scalar_type(bucket.dtype), device_);
    parameters_[weight.unsafeGetTensorImpl()] = static_cast<int>(i);
    weights_.push_back(weight.requires_grad_(!bucket.frozen));
  }
}

std::optional<int> RankState::find_weight(const at::Tensor& tensor) const {
  const auto found = parameters_.find(tensor.unsafeGetTensorImpl());
  return found == parameters_.end() ? std::nullopt : std::optional(found->second);
}

void RankState::point_weight(int parameter, void* memory, int64_t bytes) const {
  point(weights_[parameter], at::DataPtr(memory, device_), static_cast<size_t>(bytes));
}

void RankState::begin_slot(int index) {
  const at::Tensor& slot = slots_[index];
  const planner::Slot& described = schedule_.slot(index);
  check(!described.lasts() && !has_memory_[index], "a slot that has memory takes it again");
  has_memory_[index] = true;
  const profiler::Scope scope(planner::category_of(described.kind), described.name());
  const at::Tensor memory = at::empty(slot.sizes(), slot.options());
  const size_t bytes = memory.nbytes();
  check(static_cast<int64_t>(bytes) == described.bytes,
        "a slot's tensor does not have the bytes that the schedule says");
  point(slot, std::move(memory.storage().unsafeGetStorageImpl()->_mutable_data_ptr_no_checks()),
        bytes);
}

void RankState::end_slot(int index) {
  check(!schedule_.slot(index).lasts() && has_memory_[index],
        "a slot without memory gives it back");
  has_memory_[index] = false;
  point(slots_[index], at::DataPtr(nullptr, device_), 0);
}

void RankState::set_parameter(int parameter, const at::Tensor& value) {
  const StateRange range = planner::range_of(schedule_, places_[parameter], rank_);
  if (range.numel == 0) return;
  const BucketState& state = buckets_[range.group][range.bucket];
  check(range.shard_begin + range.numel <= state.master.numel(),
        "a parameter reaches past the masters of its bucket");
  const at::Tensor part = value.reshape({-1}).narrow(0, range.begin, range.numel);
  for (const at::Tensor& copy : {state.master, state.cast, state.parameters}) {
    copy.narrow(0, range.shard_begin, range.numel).copy_(part);
  }
}

std::vector<StateRange> RankState::ranges() const {
  std::vector<StateRange> ranges;
  for (int group = 0; group < static_cast<int>(buckets_.size()); ++group) {
    for (int bucket = 0; bucket < static_cast<int>(buckets_[group].size()); ++bucket) {
      for (const auto& entry : schedule_.groups[group].buckets[bucket].entries) {
        const StateRange range = planner::range_of(schedule_, {group, bucket, entry}, rank_);
        if (range.numel > 0) ranges.push_back(range);
      }
    }
  }
  return ranges;
}

void RankState::renew_casts() {
  for (std::vector<BucketState>& group : buckets_) {
    for (BucketState& bucket : group) {
      if (!bucket.cast.is_same(bucket.master)) bucket.cast.copy_(bucket.master);
      if (!bucket.parameters.is_same(bucket.cast)) bucket.parameters.copy_(bucket.cast);
    }
  }
}

void RankState::bind(int group, int slot) {
  check(!bound_[group], "a group's weights are bound twice");
  check(schedule_.slot(slot).kind == planner::SlotKind::unsharded,
        "weights are bound to a slot that holds none");
  auto* base = static_cast<char*>(slots_[slot].data_ptr());
  const planner::Group& layout = schedule_.groups[group];
  check(layout.parameter_bytes() <= schedule_.slot(slot).bytes,
        "a slot is smaller than the group that it holds");
  for (size_t bucket = 0; bucket < layout.buckets.size(); ++bucket) {
    const int64_t bytes = bytes_of(layout.buckets[bucket].dtype);
    char* const first = base + layout.bucket_offset_bytes(static_cast<int>(bucket));
    for (const planner::BucketEntry& entry : layout.buckets[bucket].entries) {
      point_weight(entry.parameter, first + entry.offset * bytes, entry.numel * bytes);
    }
  }
  bound_[group] = true;
}

void RankState::unbind(int group) {
  check(bound_[group], "a group's weights are released that were not bound");
  for (const planner::Bucket& bucket : schedule_.groups[group].buckets) {
    for (const planner::BucketEntry& entry : bucket.entries)
      point_weight(entry.parameter, nullptr, 0);
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

at::Tensor RankState::part_of(int group, int bucket, int slot, int parts, int index) const {
  const planner::Group& layout = schedule_.groups[group];
  const planner::Bucket& described = layout.buckets[bucket];
  check(index >= 0 && index < parts && described.numel % parts == 0,
        "a bucket does not divide into these parts");
  const int64_t bytes = described.parameter_bytes() / parts;
  const int64_t first = layout.bucket_offset_bytes(bucket) + index * bytes;
  return slots_[slot].narrow(0, first, bytes).view(scalar_type(described.dtype));
}

/// Returns, for all buckets that ranks share, the copies of this rank's part into the copy that
/// fewer ranks keep.
std::vector<TensorCopy> RankState::kept_parts(int group, int slot, int kept_slot) const {
  const int parts = schedule_.regather_shards;
  std::vector<TensorCopy> copies;
  int64_t offset = 0;
  for (size_t bucket = 0; bucket < schedule_.groups[group].buckets.size(); ++bucket) {
    if (schedule_.groups[group].buckets[bucket].whole) continue;
    at::Tensor part = part_of(group, static_cast<int>(bucket), slot, parts, rank_ % parts);
    const auto bytes = static_cast<int64_t>(part.nbytes());
    at::Tensor kept = slots_[kept_slot].narrow(0, offset, bytes).view(part.scalar_type());
    offset += bytes;
    copies.push_back({std::move(kept), std::move(part)});
  }
  return copies;
}

const std::vector<TensorCopy>& RankState::gather_copies(int group, int slot, int kept_slot) {
  std::vector<TensorCopy>& copies = gather_copies_[{group, slot, kept_slot}];
  if (!copies.empty()) return copies;
  const std::vector<planner::Bucket>& buckets = schedule_.groups[group].buckets;
  for (size_t i = 0; i < buckets.size(); ++i) {
    if (kept_slot >= 0 && !buckets[i].whole) continue;
    const int shards = schedule_.shards_of(buckets[i]);
    copies.push_back({part_of(group, static_cast<int>(i), slot, shards, rank_ % shards),
                      buckets_[group][i].parameters});
  }
  if (kept_slot < 0) return copies;
  for (auto& [kept, part] : kept_parts(group, slot, kept_slot)) copies.push_back({part, kept});
  return copies;
}

const std::vector<TensorCopy>& RankState::keep_copies(int group, int slot, int kept_slot) {
  std::vector<TensorCopy>& copies = keep_copies_[{group, slot, kept_slot}];
  if (copies.empty()) copies = kept_parts(group, slot, kept_slot);
  return copies;
}

const at::Tensor& RankState::gradient(int parameter, int slot) {
  View& view = gradients_[parameter];
  if (view.slot == slot) return view.tensor;
  const planner::BucketEntry& entry = places_[parameter].entry;
  view.slot = slot;
  view.tensor = slots_[slot].narrow(0, entry.offset, entry.numel).view(weights_[parameter].sizes());
  return view.tensor;
}

at::Tensor RankState::shard_in(int group, int bucket, int slot) {
  std::vector<View>& views = bucket_views_[group][bucket].shards;
  for (const View& view : views) {
    if (view.slot == slot) return view.tensor;
  }
  const int64_t numel = buckets_[group][bucket].master.numel();
  check(numel == schedule_.shard_numel(schedule_.groups[group].buckets[bucket]),
        "a bucket's masters are not as long as its shard");
  const bool holds_all = schedule_.slot(slot).kind == planner::SlotKind::reduce;
  const int shards = schedule_.shards_of(schedule_.groups[group].buckets[bucket]);
  const int64_t begin = holds_all ? rank_ % shards * numel : 0;
  return views.emplace_back(View{slot, slots_[slot].narrow(0, begin, numel)}).tensor;
}

}  // namespace shardlens::runtime
