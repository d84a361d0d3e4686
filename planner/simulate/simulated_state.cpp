#include "planner/simulate/simulated_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "base/check.h"
#include "planner/schedule/checkpoints.h"

namespace shardlens::planner {

using profiler::Category;

SimulatedState::SimulatedState(const models::ModelSpec& spec, const Schedule& schedule,
                               std::vector<const char*> moments, const RankMemory& memory)
    : schedule_(schedule),
      moments_(std::move(moments)),
      memory_(memory),
      masters_(pinned_totals(schedule).masters_bytes),
      casts_(pinned_totals(schedule).parameters_bytes),
      slots_(schedule.slots.size()),
      places_(places_of(schedule)) {
  check(places_.size() == spec.parameters.size(), "a parameter lies in no bucket");
  allocate_buckets();
  allocate_slots();
  make_weights(spec);
}

void SimulatedState::keep(Category category, const std::string& label, meta::Memory& memory,
                          int64_t bytes) {
  const TimelineScope scope(memory_.timeline, category, label);
  kept_.push_back(std::make_shared<meta::Storage>(memory, bytes));
}

void SimulatedState::allocate_buckets() {
  const bool is_offloaded = schedule_.offload != Offload::none;
  meta::Memory& device = *memory_.device.memory;
  meta::Memory& stepping = schedule_.steps_on_host() ? memory_.host : device;
  for (size_t g = 0; g < schedule_.groups.size(); ++g) {
    const Group& group = schedule_.groups[g];
    for (size_t b = 0; b < group.buckets.size(); ++b) {
      const Bucket& bucket = group.buckets[b];
      const std::string name = fmt::format("{} bucket {}", group.name, b);
      const int64_t numel = schedule_.shard_numel(bucket);
      if (is_offloaded) {
        allocate_host_copies(bucket, name);
      } else {
        keep(Category::parameter_shard, name + " master", device, numel * bytes_of(kMasterDType));
      }
      if (schedule_.offload == Offload::optimizer) {
        keep(Category::parameter_shard, name + " parameters", device,
             numel * bytes_of(bucket.dtype));
      }
      if (bucket.frozen) continue;
      for (const char* moment : moments_) {
        keep(Category::optimizer_state, fmt::format("{} {}", name, moment), stepping,
             numel * bytes_of(kMasterDType));
      }
    }
  }
  keep(Category::optimizer_state, "step count", stepping, bytes_of(kMasterDType));
}

void SimulatedState::allocate_host_copies(const Bucket& bucket, const std::string& name) {
  const int64_t numel = schedule_.shard_numel(bucket);
  const auto take = [&](bool pinned, PinnedBlocks& blocks, const char* label,
                        const std::string& own_label, DType dtype) {
    const int64_t bytes = numel * bytes_of(dtype);
    if (pinned && memory_.has_device()) {
      take_pinned(blocks, Category::parameter_shard, label, bytes);
    } else {
      keep(Category::parameter_shard, name + own_label, memory_.host, bytes);
    }
  };
  take(pins_master(schedule_, bucket), masters_, "masters", " master", kMasterDType);
  if (has_host_cast(bucket)) take(true, casts_, "parameters", " parameters", bucket.dtype);
}

void SimulatedState::take_pinned(PinnedBlocks& blocks, Category category, const char* label,
                                 int64_t bytes) {
  const int64_t block_bytes = blocks.take(bytes).new_block_bytes;
  if (block_bytes > 0) keep(category, label, memory_.pinned, block_bytes);
}

void SimulatedState::take_staging(int rank) {
  constexpr const char* kLabel = "checkpoint";
  std::vector<int64_t> pieces;
  for (const Group& group : schedule_.groups) {
    for (const Bucket& bucket : group.buckets) {
      const int64_t numel = part_to_write(schedule_, bucket, rank).numel;
      if (numel == 0) continue;
      const size_t copies = bucket.frozen ? 1 : 1 + moments_.size();
      pieces.insert(pieces.end(), copies, numel * bytes_of(kMasterDType));
    }
  }
  int64_t total_bytes = 0;
  for (const int64_t bytes : pieces) total_bytes += PinnedBlocks::rounded(bytes);
  PinnedBlocks blocks(total_bytes);
  for (const int64_t bytes : pieces) {
    if (memory_.has_device()) {
      take_pinned(blocks, Category::checkpoint_staging, kLabel, bytes);
    } else {
      keep(Category::checkpoint_staging, kLabel, memory_.host, bytes);
    }
  }
}

void SimulatedState::allocate_slots() {
  PinnedBlocks gradients(pinned_totals(schedule_).gradients_bytes);
  for (size_t i = 0; i < schedule_.slots.size(); ++i) {
    const Slot& slot = schedule_.slots[i];
    if (is_pinned(slot) && memory_.has_device()) {
      take_pinned(gradients, Category::gradient_shard, "gradients", slot.bytes);
    } else if (slot.lasts()) {
      begin_slot(static_cast<int>(i));
    }
  }
}

meta::Tensor SimulatedState::slot(int index) const {
  const Slot& slot = schedule_.slot(index);
  return meta::Tensor::placed(memory_.device, {slot.bytes / bytes_of(slot.dtype)},
                              meta::type_of(slot.dtype));
}

meta::Tensor SimulatedState::shard_in(int group, int bucket, int slot) const {
  const Bucket& held =
      schedule_.groups[static_cast<size_t>(group)].buckets[static_cast<size_t>(bucket)];
  return meta::Tensor::placed(memory_.device, {schedule_.shard_numel(held)},
                              meta::type_of(schedule_.slot(slot).dtype));
}

meta::Tensor SimulatedState::step_count() const {
  return meta::Tensor::placed(memory_.device, {}, meta::type_of(kMasterDType));
}

void SimulatedState::begin_slot(int index) {
  const Slot& slot = schedule_.slot(index);
  check(slots_[static_cast<size_t>(index)] == nullptr, "a slot takes memory that has some");
  const TimelineScope scope(memory_.timeline, category_of(slot.kind), slot.name());
  slots_[static_cast<size_t>(index)] = std::make_shared<meta::Storage>(
      slot.on_host ? memory_.host : *memory_.device.memory, slot.bytes);
}

void SimulatedState::end_slot(int index) {
  check(!schedule_.slot(index).lasts() && slots_[static_cast<size_t>(index)] != nullptr,
        "a slot gives memory back that has none");
  slots_[static_cast<size_t>(index)] = {};
}

void SimulatedState::make_weights(const models::ModelSpec& spec) {
  for (size_t i = 0; i < places_.size(); ++i) {
    const ParameterPlace& place = places_[i];
    const Bucket& bucket = schedule_.groups[static_cast<size_t>(place.group)]
                               .buckets[static_cast<size_t>(place.bucket)];
    meta::Tensor weight = meta::Tensor::placed(
        memory_.device, meta::Sizes(std::span<const int64_t>(spec.parameters[i].shape)),
        meta::type_of(bucket.dtype));
    weight.requires_grad_(!bucket.frozen);
    if (!bucket.frozen) parameters_[weight.leaf().get()] = static_cast<int>(i);
    weights_.push_back(std::move(weight));
  }
}

int SimulatedState::parameter_of(const meta::Leaf& leaf) const {
  const auto found = parameters_.find(&leaf);
  return found == parameters_.end() ? -1 : found->second;
}

}  // namespace shardlens::planner
