#include <algorithm>
#include <utility>
#include <vector>

#include "planner/backward_builder.h"
#include "planner/builders.h"
#include "planner/residency.h"
#include "planner/step_builder.h"

namespace shardlens::planner {
namespace {

/// Walks the units, and issues gathers and reshards around them. A *gather* here is all that fills
/// a slot: CAST_SHARD, and ALL_GATHER where there is more than one shard.
class FsdpBuilder {
 public:
  FsdpBuilder(const models::ModelSpec& spec, const Strategy& strategy, Pass pass,
              int prefetch_depth);

  Schedule build();

 private:
  const Interval& interval(int index) const { return plan_.intervals[static_cast<size_t>(index)]; }
  const Use& use(int index) const { return plan_.uses[static_cast<size_t>(index)]; }
  int use_count() const { return static_cast<int>(plan_.uses.size()); }

  void add_forward();
  void add_backward();
  void add_gather();
  void add_reshard(int interval);
  void issue_gathers();
  GatheredParameters gathered_for_unit() const;
  void end_unit(int unit);
  bool is_in_pass(const Use& use) const { return pass_ == Pass::train || !use.backward; }

  StepBuilder step_;
  Residency plan_;
  Pass pass_;
  int prefetch_depth_;

  int current_use_ = 0;            // the one that the compute is in, or comes to next
  int reached_ = 0;                // the last interval that the compute has come to
  std::vector<int> gathers_;       // by interval, those issued so far: their last action
  std::vector<int> resident_;      // by slot: the interval in it, -1: free
  std::vector<int> last_reshard_;  // by slot: the action that freed it, -1: none
};

FsdpBuilder::FsdpBuilder(const models::ModelSpec& spec, const Strategy& strategy, Pass pass,
                         int prefetch_depth)
    : step_(spec, strategy),
      plan_(plan_residency(step_, prefetch_depth)),
      pass_(pass),
      prefetch_depth_(prefetch_depth),
      resident_(plan_.intervals.size(), -1),
      last_reshard_(plan_.intervals.size(), -1) {}

void FsdpBuilder::issue_gathers() {
  if (current_use_ == use_count() || !is_in_pass(use(current_use_))) return;
  reached_ = std::max(reached_, use(current_use_).interval);
  const int end =
      std::min(reached_ + prefetch_depth_ + 1, static_cast<int>(plan_.intervals.size()));
  for (auto next = static_cast<int>(gathers_.size()); next < end; ++next) {
    const bool is_free = resident_[static_cast<size_t>(interval(next).slot)] < 0;
    if (!is_free || !is_in_pass(use(interval(next).first_use))) return;
    add_gather();
  }
}

void FsdpBuilder::add_gather() {
  const auto index = static_cast<int>(gathers_.size());
  const auto [group, first_use, last_use, slot] = interval(index);
  Action action = step_.action_of_group(ActionKind::cast_shard, group);
  action.waits = {last_reshard_[static_cast<size_t>(slot)]};
  action.writes = {slot};
  action.bytes = step_.parameter_bytes(group) / step_.shards();
  gathers_.push_back(step_.add(action));
  if (step_.shards() > 1) {
    action.kind = ActionKind::all_gather;
    action.waits = {};
    gathers_.back() = step_.add(std::move(action));
  }
  resident_[static_cast<size_t>(slot)] = index;
}

void FsdpBuilder::add_reshard(int index) {
  const auto slot = interval(index).slot;
  Action action = step_.action_of_group(ActionKind::reshard, interval(index).group);
  action.writes = {slot};
  last_reshard_[static_cast<size_t>(slot)] = step_.add(std::move(action));
  resident_[static_cast<size_t>(slot)] = -1;
}

GatheredParameters FsdpBuilder::gathered_for_unit() const {
  const int index = use(current_use_).interval;
  return {interval(index).slot, gathers_[static_cast<size_t>(index)]};
}

void FsdpBuilder::end_unit(int unit) {
  if (unit != use(current_use_).last_unit) return;
  const int index = use(current_use_).interval;
  if (interval(index).last_use == current_use_) add_reshard(index);
  ++current_use_;
  issue_gathers();
}

void FsdpBuilder::add_forward() {
  for (int unit = 0; unit < step_.unit_count(); ++unit) {
    const bool reads = step_.unit(unit).group >= 0;
    step_.add_forward(unit, reads ? gathered_for_unit() : GatheredParameters{});
    if (reads) end_unit(unit);
  }
}

void FsdpBuilder::add_backward() {
  BackwardBuilder backward(step_);
  for (int unit = step_.unit_count() - 1; unit >= 0; --unit) {
    const bool reads = step_.reads_in_backward(unit);
    backward.add_unit(unit, reads ? gathered_for_unit() : GatheredParameters{});
    if (reads) end_unit(unit);
  }
  backward.finish();
}

Schedule FsdpBuilder::build() {
  issue_gathers();  // before the input, to run while it loads
  step_.add_load_input();
  add_forward();
  step_.add_loss();
  if (pass_ == Pass::train) add_backward();
  // What an evaluation has kept for a backward that does not come.
  for (const int interval : std::vector<int>(resident_)) {
    if (interval >= 0) add_reshard(interval);
  }
  return step_.take();
}

}  // namespace

Schedule build_fsdp(const models::ModelSpec& spec, const Strategy& strategy, Pass pass,
                    int prefetch_depth) {
  return FsdpBuilder(spec, strategy, pass, prefetch_depth).build();
}

}  // namespace shardlens::planner
