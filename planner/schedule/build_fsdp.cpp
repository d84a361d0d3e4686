#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "planner/schedule/backward_builder.h"
#include "planner/schedule/builders.h"
#include "planner/schedule/residency.h"
#include "planner/schedule/step_builder.h"

namespace shardlens::planner {
namespace {

/// Walks the units, and issues gathers and reshards around them. A *gather* here means all actions
/// that fill a slot: CAST_SHARD or H2D, and ALL_GATHER if ranks share any bucket.
class FsdpBuilder {
 public:
  FsdpBuilder(const models::ModelSpec& spec, const Strategy& strategy, Pass pass);

  Schedule build();

 private:
  const Interval& interval(int index) const { return plan_.intervals[static_cast<size_t>(index)]; }
  const GroupUse& use(int index) const { return plan_.uses[static_cast<size_t>(index)]; }

  void add_gather();
  void add_reshard(int interval);
  bool can_gather(const Interval& next) const;
  void issue_gathers();
  void add_visit(const Visit& visit);
  void end_visit();

  StepBuilder step_;
  Residency plan_;
  std::optional<BackwardBuilder> backward_;  // of a training step

  int uses_in_pass_ = 0;
  int current_use_ = 0;          // the use that the compute is in, or comes to next
  int visits_done_ = 0;          // of that use
  int reached_ = 0;              // the last interval that the compute has come to
  int gathers_ = 0;              // intervals that are gathered so far
  std::vector<int> resident_;    // by slot: the interval in it, -1: free
  std::vector<int> kept_slots_;  // by group: the slot to gather again from; -1: none
};

FsdpBuilder::FsdpBuilder(const models::ModelSpec& spec, const Strategy& strategy, Pass pass)
    : step_(spec, strategy, pass), plan_(plan_residency(step_, pass)) {
  if (pass == Pass::train) backward_.emplace(step_);
  const auto end = std::find_if(plan_.uses.begin(), plan_.uses.end(), [&](const GroupUse& use) {
    return pass == Pass::evaluate && use.backward;
  });
  uses_in_pass_ = static_cast<int>(end - plan_.uses.begin());
  resident_.assign(step_.schedule().slots.size(), -1);
  kept_slots_.assign(step_.layout().groups.size(), -1);
}

void FsdpBuilder::issue_gathers() {
  if (current_use_ == uses_in_pass_) return;
  reached_ = std::max(reached_, use(current_use_).interval);
  while (gathers_ < static_cast<int>(plan_.intervals.size())) {
    const Interval& next = interval(gathers_);
    const int depth = prefetch_depth(step_.strategy(), use(next.first_use));
    if (!can_gather(next) || gathers_ > reached_ + depth) return;
    add_gather();
  }
}

bool FsdpBuilder::can_gather(const Interval& next) const {
  if (next.first_use >= uses_in_pass_ || resident_[static_cast<size_t>(next.slot)] >= 0) {
    return false;
  }
  return !next.regathers || kept_slots_[static_cast<size_t>(next.group)] >= 0;
}

void FsdpBuilder::add_gather() {
  const Interval& next = interval(gathers_);
  const Schedule& schedule = step_.schedule();
  const Group& group = step_.group(next.group);
  const int shards = next.regathers ? schedule.regather_shards : schedule.shards;
  const int64_t shared_bytes = group.shared_bytes();
  const bool from_host = schedule.gathers_from_host() && !next.regathers;
  Action action =
      step_.action_of_group(from_host ? ActionKind::h2d : ActionKind::cast_shard, next.group);
  if (next.regathers) action.reads = {kept_slots_[static_cast<size_t>(next.group)]};
  action.writes = {next.slot};
  action.bytes = group.parameter_bytes() - shared_bytes + shared_bytes / shards;
  step_.add(action);
  if (shards > 1 && shared_bytes > 0) {
    action.kind = ActionKind::all_gather;
    if (next.regathers) action.channel = Channel::regather;
    action.reads = {};
    action.bytes = shared_bytes / shards;
    step_.add(std::move(action));
  }
  resident_[static_cast<size_t>(next.slot)] = gathers_++;
}

void FsdpBuilder::add_reshard(int index) {
  const Interval& ended = interval(index);
  Action action = step_.action_of_group(ActionKind::reshard, ended.group);
  action.writes = {ended.slot};
  if (ended.kept_slot >= 0) {
    action.writes.push_back(ended.kept_slot);
    kept_slots_[static_cast<size_t>(ended.group)] = ended.kept_slot;
  }
  step_.add(std::move(action));
  resident_[static_cast<size_t>(ended.slot)] = -1;
}

void FsdpBuilder::add_visit(const Visit& visit) {
  const int slot = visit.reads ? interval(use(current_use_).interval).slot : -1;
  if (visit.kind == ActionKind::backward) {
    backward_->add_unit(visit, slot);
  } else {
    step_.add_visit(visit, slot);
  }
  if (visit.reads) end_visit();
}

void FsdpBuilder::end_visit() {
  const GroupUse& current = use(current_use_);
  if (++visits_done_ < current.visits) return;
  visits_done_ = 0;
  if (interval(current.interval).last_use == current_use_) add_reshard(current.interval);
  ++current_use_;
  issue_gathers();
}

Schedule FsdpBuilder::build() {
  issue_gathers();  // before the input, to run while it loads
  for (const Visit& visit : step_.visits()) add_visit(visit);
  if (backward_) backward_->finish();
  // An evaluation keeps some groups for a backward that does not come: reshard them.
  for (const int interval : std::vector<int>(resident_)) {
    if (interval >= 0) add_reshard(interval);
  }
  return step_.take();
}

}  // namespace

Schedule build_fsdp(const models::ModelSpec& spec, const Strategy& strategy, Pass pass) {
  return FsdpBuilder(spec, strategy, pass).build();
}

}  // namespace shardlens::planner
