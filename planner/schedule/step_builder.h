// Builds a schedule: makes the layout, then takes actions one by one. Private to the planner; the
// builders of all strategies share it.
//
// Waits follow from the slots that an action touches: it comes after the actions that wrote what it
// reads, and after all that it would disturb. Callers name only the waits that no slot implies.
// `add` keeps the waits that nothing else implies, so removing any of them makes a race.
#pragma once

#include <span>
#include <vector>

#include "models/spec.h"
#include "planner/schedule/layout.h"
#include "planner/schedule/schedule.h"
#include "planner/schedule/stream_clocks.h"

namespace shardlens::planner {

/// Returns the stream of an action. Reductions between replicas have a stream of their own, and
/// actions that only touch host memory are on `host`.
Stream stream_of(const Schedule& schedule, const Action& action);
/// Returns the usual channel of a kind; gathers of kept parts and reductions between replicas name
/// theirs.
Channel channel_of(ActionKind kind);

/// One turn of a unit in a step, or an action between units: LOAD_INPUT and LOSS have no unit.
struct Visit {
  ActionKind kind{};
  int unit = -1;
  int microbatch = 0;
  bool reads = false;  // the unit's unsharded parameters
};

/// Builds one schedule. Borrows the spec, which must outlive it.
class StepBuilder {
 public:
  /// Throws std::invalid_argument if the strategy does not fit the ranks or the model.
  StepBuilder(const models::ModelSpec& spec, const Strategy& strategy, Pass pass);

  const models::ModelSpec& spec() const { return spec_; }
  const Strategy& strategy() const { return strategy_; }
  const Layout& layout() const { return layout_; }
  const UnitLayout& unit(int unit) const { return layout_.units[static_cast<size_t>(unit)]; }
  int unit_count() const { return static_cast<int>(layout_.units.size()); }
  /// Returns the schedule so far; its tables are complete from the start.
  const Schedule& schedule() const { return schedule_; }
  const Group& group(int group) const { return schedule_.groups[static_cast<size_t>(group)]; }
  const Bucket& bucket(int group, int bucket) const {
    return this->group(group).buckets[static_cast<size_t>(bucket)];
  }

  /// Returns the order in which a training step visits the units, one microbatch after the other.
  /// An evaluation makes the first of these visits.
  const std::vector<Visit>& training_visits() const { return visits_; }
  std::span<const Visit> visits() const { return std::span(visits_).first(visits_in_pass_); }

  /// Adds a slot and returns its index into Schedule::slots. Slots of one kind are numbered from 0.
  int add_slot(SlotKind kind, int64_t bytes, bool on_host = false);

  /// These return an action in the microbatch that the pass has come to; `add` appends it.
  Action action_of_unit(ActionKind kind, int unit) const;
  Action action_of_group(ActionKind kind, int group, int bucket = -1) const;

  /// Appends an action and returns its id. Sets its stream and, if it has none, its channel, and
  /// adds the waits that follow from its slots.
  int add(Action action);

  /// Adds LOAD_INPUT, FORWARD, LOSS or RECOMPUTE; `slot` -1: the unit reads none.
  void add_visit(const Visit& visit, int slot = -1);

  Schedule take();

 private:
  /// The actions that touched a slot last.
  struct Accesses {
    int write = -1;
    std::vector<int> reads;  // since then
  };

  void find_visits();
  void visit_forward(int microbatch);
  void visit_backward(int microbatch);
  int first_trained_unit() const;
  /// True if a unit's output is not kept, but computed again before its backward.
  bool is_recomputed(int unit) const;
  DType dtype_of(SlotKind kind) const;
  std::vector<int> hazards(const Action& action) const;
  void remember(int id, const Action& action);

  const models::ModelSpec& spec_;
  Strategy strategy_;
  Layout layout_;
  Schedule schedule_;
  std::vector<Visit> visits_;
  size_t visits_in_pass_ = 0;
  int microbatch_ = 0;              // that the pass has come to
  std::vector<Accesses> accesses_;  // by slot
  int last_on_main_ = -1;
  StreamClocks clocks_;
};

}  // namespace shardlens::planner
