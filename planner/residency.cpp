#include "planner/residency.h"

#include <algorithm>
#include <utility>

namespace shardlens::planner {
namespace {

/// The first and last use between which a slot may hold a group.
struct Lifetime {
  int first_use;
  int last_use;
};

class ResidencyPlanner {
 public:
  ResidencyPlanner(StepBuilder& step, int prefetch_depth) : step_(step), depth_(prefetch_depth) {}

  Residency plan() {
    find_uses();
    find_intervals();
    assign_ring_slots();
    assign_own_slots();
    return std::move(plan_);
  }

 private:
  void find_uses();
  void find_intervals();
  void assign_ring_slots();
  void assign_own_slots();

  void add_use(int unit, bool backward);
  bool is_kept(int group) const;
  bool uses_ring(int group) const;
  std::vector<Lifetime> lifetimes_of(int group) const;
  void set_slot(int group, int slot);

  StepBuilder& step_;
  int depth_;
  Residency plan_;
};

void ResidencyPlanner::find_uses() {
  for (int unit = 0; unit < step_.unit_count(); ++unit) {
    if (step_.unit(unit).group >= 0) add_use(unit, false);
  }
  for (int unit = step_.unit_count() - 1; unit >= 0; --unit) {
    if (step_.reads_in_backward(unit)) add_use(unit, true);
  }
}

void ResidencyPlanner::add_use(int unit, bool backward) {
  const int group = step_.unit(unit).group;
  if (plan_.uses.empty() || plan_.uses.back().group != group ||
      plan_.uses.back().backward != backward) {
    plan_.uses.push_back({group, unit, backward, -1});
  }
  plan_.uses.back().last_unit = unit;
}

bool ResidencyPlanner::is_kept(int group) const {
  const bool read_in_backward =
      std::any_of(plan_.uses.begin(), plan_.uses.end(),
                  [&](const Use& use) { return use.backward && use.group == group; });
  if (!read_in_backward) return false;
  switch (step_.strategy().reshard_after_forward) {
    case Reshard::yes:
      return false;
    case Reshard::no:
      return true;
    case Reshard::automatic:
      return group == step_.layout().units.back().group;
  }
  return false;
}

void ResidencyPlanner::find_intervals() {
  for (int i = 0; i < static_cast<int>(plan_.uses.size()); ++i) {
    Use& use = plan_.uses[static_cast<size_t>(i)];
    auto found = plan_.intervals.end();
    if (is_kept(use.group)) {
      found = std::find_if(plan_.intervals.begin(), plan_.intervals.end(),
                           [&](const Interval& interval) { return interval.group == use.group; });
    }
    if (found == plan_.intervals.end()) {
      found = plan_.intervals.insert(found, {use.group, i, i, -1});
    }
    found->last_use = i;
    use.interval = static_cast<int>(found - plan_.intervals.begin());
  }
}

bool ResidencyPlanner::uses_ring(int group) const {
  const Group& described = step_.layout().groups[static_cast<size_t>(group)];
  return !is_kept(group) && described.numel() <= step_.layout().block_numel;
}

void ResidencyPlanner::assign_ring_slots() {
  std::vector<Interval*> ring;
  int64_t bytes = 0;
  for (Interval& interval : plan_.intervals) {
    if (!uses_ring(interval.group)) continue;
    ring.push_back(&interval);
    bytes = std::max(bytes, step_.parameter_bytes(interval.group));
  }
  const size_t slot_count = std::min(ring.size(), static_cast<size_t>(depth_) + 1);
  std::vector<int> slots;
  for (size_t i = 0; i < slot_count; ++i) {
    slots.push_back(step_.add_slot(SlotKind::unsharded, bytes));
  }
  for (size_t i = 0; i < ring.size(); ++i) ring[i]->slot = slots[i % slot_count];
}

std::vector<Lifetime> ResidencyPlanner::lifetimes_of(int group) const {
  std::vector<Lifetime> lifetimes;
  for (size_t i = 0; i < plan_.intervals.size(); ++i) {
    if (plan_.intervals[i].group != group) continue;
    const size_t issued_with = i - std::min(i, static_cast<size_t>(depth_));
    lifetimes.push_back({plan_.intervals[issued_with].first_use, plan_.intervals[i].last_use});
  }
  return lifetimes;
}

void ResidencyPlanner::set_slot(int group, int slot) {
  for (Interval& interval : plan_.intervals) {
    if (interval.group == group) interval.slot = slot;
  }
}

void ResidencyPlanner::assign_own_slots() {
  struct OwnSlot {
    std::vector<int> groups;
    std::vector<Lifetime> lifetimes;
    int64_t bytes = 0;
  };
  const auto meets = [](const Lifetime& a, const Lifetime& b) {
    return a.first_use <= b.last_use && b.first_use <= a.last_use;
  };
  std::vector<OwnSlot> slots;
  for (int group = 0; group < static_cast<int>(step_.layout().groups.size()); ++group) {
    if (uses_ring(group)) continue;
    const std::vector<Lifetime> lifetimes = lifetimes_of(group);
    auto chosen = std::find_if(slots.begin(), slots.end(), [&](const OwnSlot& slot) {
      return std::none_of(lifetimes.begin(), lifetimes.end(), [&](const Lifetime& one) {
        return std::any_of(slot.lifetimes.begin(), slot.lifetimes.end(),
                           [&](const Lifetime& other) { return meets(one, other); });
      });
    });
    if (chosen == slots.end()) chosen = slots.insert(chosen, OwnSlot{});
    chosen->groups.push_back(group);
    chosen->lifetimes.insert(chosen->lifetimes.end(), lifetimes.begin(), lifetimes.end());
    chosen->bytes = std::max(chosen->bytes, step_.parameter_bytes(group));
  }
  for (const OwnSlot& own : slots) {
    const int slot = step_.add_slot(SlotKind::unsharded, own.bytes);
    for (const int group : own.groups) set_slot(group, slot);
  }
}

}  // namespace

Residency plan_residency(StepBuilder& step, int prefetch_depth) {
  return ResidencyPlanner(step, prefetch_depth).plan();
}

}  // namespace shardlens::planner
