#include "planner/schedule/residency.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace shardlens::planner {
namespace {

/// The first and last use between which a slot may hold a group.
struct Lifetime {
  int first_use;
  int last_use;
};

class ResidencyPlanner {
 public:
  explicit ResidencyPlanner(StepBuilder& step)
      : step_(step),
        depth_(std::max(step.strategy().forward_prefetch, step.strategy().backward_prefetch)) {}

  Residency plan(Pass pass) {
    for (const Visit& visit : step_.training_visits()) add_visit(visit);
    find_intervals();
    assign_ring_slots();
    assign_own_slots();
    if (pass == Pass::train) assign_kept_slots();
    check_slots();
    return std::move(plan_);
  }

 private:
  void add_visit(const Visit& visit);
  void find_intervals();
  void assign_ring_slots();
  void assign_own_slots();
  void assign_kept_slots();
  void check_slots() const;

  bool is_kept(int group) const;
  bool uses_ring(int group) const;
  std::vector<Lifetime> lifetimes_of(int group) const;
  void set_slot(int group, int slot);

  StepBuilder& step_;
  int depth_;  // the most that are prefetched
  Residency plan_;
};

void ResidencyPlanner::add_visit(const Visit& visit) {
  if (!visit.reads) return;
  const int group = step_.unit(visit.unit).group;
  const bool backward = visit.kind != ActionKind::forward;
  const bool continues = !plan_.uses.empty() && plan_.uses.back().group == group &&
                         plan_.uses.back().backward == backward;
  if (!continues) plan_.uses.push_back({group, 0, backward, -1});
  ++plan_.uses.back().visits;
}

bool ResidencyPlanner::is_kept(int group) const {
  const bool read_in_backward =
      std::any_of(plan_.uses.begin(), plan_.uses.end(),
                  [&](const GroupUse& use) { return use.backward && use.group == group; });
  if (!read_in_backward) return false;
  switch (step_.strategy().reshard_after_forward) {
    case Reshard::yes:
    case Reshard::partly:
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
    GroupUse& use = plan_.uses[static_cast<size_t>(i)];
    auto found = plan_.intervals.end();
    if (is_kept(use.group)) {
      found = std::find_if(plan_.intervals.begin(), plan_.intervals.end(),
                           [&](const Interval& interval) { return interval.group == use.group; });
    }
    if (found == plan_.intervals.end()) {
      found = plan_.intervals.insert(found, {.group = use.group, .first_use = i});
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
    bytes = std::max(bytes, step_.group(interval.group).parameter_bytes());
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
    chosen->bytes = std::max(chosen->bytes, step_.group(group).parameter_bytes());
  }
  for (const OwnSlot& own : slots) {
    const int slot = step_.add_slot(SlotKind::unsharded, own.bytes);
    for (const int group : own.groups) set_slot(group, slot);
  }
}

void ResidencyPlanner::assign_kept_slots() {
  if (step_.schedule().regather_shards == 0) return;
  std::vector<bool> is_kept(step_.layout().groups.size());
  for (size_t i = 0; i < plan_.intervals.size(); ++i) {
    Interval& interval = plan_.intervals[i];
    const Group& group = step_.group(interval.group);
    const bool is_used_again = std::any_of(
        plan_.intervals.begin() + static_cast<std::ptrdiff_t>(i) + 1, plan_.intervals.end(),
        [&](const Interval& later) { return later.group == interval.group; });
    interval.regathers = is_kept[static_cast<size_t>(interval.group)];
    if (interval.regathers || !is_used_again || group.shared_bytes() == 0) continue;
    is_kept[static_cast<size_t>(interval.group)] = true;
    interval.kept_slot = step_.add_slot(SlotKind::kept_shard,
                                        group.shared_bytes() / step_.schedule().regather_shards);
  }
}

/// Throws std::logic_error unless every use of a group has a slot in which the group has room.
void ResidencyPlanner::check_slots() const {
  for (const GroupUse& use : plan_.uses) {
    check(use.interval >= 0 && use.visits > 0, "a group is used at no time");
  }
  for (const Interval& interval : plan_.intervals) {
    check(interval.first_use <= interval.last_use, "a group's time ends before it begins");
    check(interval.slot >= 0, "a group has no slot at a time when it is used");
    check(
        step_.group(interval.group).parameter_bytes() <= step_.schedule().slot(interval.slot).bytes,
        "a slot is smaller than the group that it holds");
    check(interval.kept_slot < 0 || !interval.regathers, "a group is kept that is gathered again");
  }
}

}  // namespace

int prefetch_depth(const Strategy& strategy, const GroupUse& use) {
  return use.backward ? strategy.backward_prefetch : strategy.forward_prefetch;
}

Residency plan_residency(StepBuilder& step, Pass pass) { return ResidencyPlanner(step).plan(pass); }

}  // namespace shardlens::planner
