#include "profiler/report/peak_set.h"

#include "base/check.h"

namespace shardlens::profiler {

PeakSet::Addition PeakSet::alloc(const Event& event, int64_t given_bytes, const Moment& moment) {
  uint32_t index = static_cast<uint32_t>(slots_.size());
  if (unused_.empty()) {
    slots_.emplace_back();
  } else {
    index = unused_.back();
    unused_.pop_back();
  }
  std::optional<LiveAllocation> replaced;
  const uint32_t before = by_address_.insert(event.address, index);
  if (before != AddressMap::kNone) replaced = end(before);
  check_slots();
  const LiveAllocation& live = slots_[index] = {.address = event.address,
                                                .asked_bytes = event.value,
                                                .given_bytes = given_bytes,
                                                .step = moment.step,
                                                .version = ++version_,
                                                .label = event.label,
                                                .action = event.action,
                                                .category = event.category,
                                                .phase = moment.phase};
  count(live, 1);
  if (!level_.set(level_.bytes + given_bytes, moment)) return {live, replaced};
  keep(peak_);
  given_at_peak_ = given_;
  asked_at_peak_ = asked_;
  return {live, replaced, true};
}

std::optional<LiveAllocation> PeakSet::free(uint64_t address) {
  const uint32_t index = by_address_.erase(address);
  if (index == AddressMap::kNone) return std::nullopt;
  const LiveAllocation ended = end(index);
  check_slots();
  return ended;
}

void PeakSet::check_slots() const {
  check(by_address_.size() + unused_.size() == slots_.size(),
        "peak set: a slot holds no allocation, and is not free");
}

/// Ends the allocation in a slot, whose address no longer leads to it.
LiveAllocation PeakSet::end(uint32_t index) {
  const LiveAllocation live = slots_[index];
  for (KeptMoment* const kept : {&peak_, &mark_}) {
    if (live.version <= kept->version) kept->set_aside.push_back(live);
  }
  count(live, -1);
  level_.bytes -= live.given_bytes;
  slots_[index].version = 0;
  unused_.push_back(index);
  return live;
}

bool PeakSet::recategorise(uint64_t address, Category category, uint32_t name) {
  const uint32_t index = by_address_.find(address);
  if (index == AddressMap::kNone) return false;
  LiveAllocation& live = slots_[index];
  const auto from = static_cast<size_t>(live.category), to = static_cast<size_t>(category);
  const auto move = [from, to](CategoryBytes& bytes, int64_t moved) {
    bytes[from] -= moved;
    bytes[to] += moved;
  };
  move(given_, live.given_bytes);
  move(asked_, live.asked_bytes);
  if (live.version <= peak_.version) {
    move(given_at_peak_, live.given_bytes);
    move(asked_at_peak_, live.asked_bytes);
  }
  live.category = category;
  if (name != 0) live.name = name;
  return true;
}

const LiveAllocation* PeakSet::find(uint64_t address) const {
  const uint32_t index = by_address_.find(address);
  return index == AddressMap::kNone ? nullptr : &slots_[index];
}

std::vector<LiveAllocation> PeakSet::live_allocations() const {
  std::vector<LiveAllocation> found;
  for (const LiveAllocation& live : slots_) {
    if (live.version != 0) found.push_back(live);
  }
  return found;
}

void PeakSet::mark() { keep(mark_); }

std::vector<LiveAllocation> PeakSet::live_at(const KeptMoment& moment) const {
  std::vector<LiveAllocation> found = moment.set_aside;
  for (const LiveAllocation& live : slots_) {
    if (live.version != 0 && live.version <= moment.version) found.push_back(live);
  }
  return found;
}

void PeakSet::count(const LiveAllocation& live, int64_t sign) {
  const auto category = static_cast<size_t>(live.category);
  asked_bytes_ += sign * live.asked_bytes;
  given_[category] += sign * live.given_bytes;
  asked_[category] += sign * live.asked_bytes;
}

void PeakSet::keep(KeptMoment& moment) const {
  moment.version = version_;
  moment.set_aside.clear();
}

}  // namespace shardlens::profiler
