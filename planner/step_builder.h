// A schedule while it is being built: the layout, and actions appended one by one. Private to the
// planner; the builders of all strategies share it.
//
// Callers name every dependency that they know of as a wait; `add` keeps those that nothing else
// implies, so waits in a schedule are minimal and taking any one away makes a race.
#pragma once

#include "models/spec.h"
#include "planner/layout.h"
#include "planner/schedule.h"
#include "planner/stream_clocks.h"

namespace shardlens::planner {

Stream stream_of(ActionKind kind);
Channel channel_of(ActionKind kind);

/// The slot that holds a unit's parameters and the action that filled it; -1: they are in none, or
/// not read.
struct GatheredParameters {
  int slot = -1;
  int gather = -1;
};

/// Borrows the spec and the strategy: they must outlive it.
class StepBuilder {
 public:
  /// Throws std::invalid_argument for a world size that does not fit.
  StepBuilder(const models::ModelSpec& spec, const Strategy& strategy);

  const models::ModelSpec& spec() const { return spec_; }
  const Strategy& strategy() const { return strategy_; }
  const Layout& layout() const { return layout_; }
  const UnitLayout& unit(int unit) const { return layout_.units[static_cast<size_t>(unit)]; }
  /// Whether the backward of a unit reads gathered parameters.
  bool reads_in_backward(int unit) const;
  int unit_count() const { return static_cast<int>(layout_.units.size()); }
  int world_size() const { return schedule_.world_size; }
  int shards() const { return schedule_.shards; }

  int64_t parameter_bytes(int group) const;             // unsharded
  int64_t gradient_bytes(int group, int bucket) const;  // before reduction

  /// Slots of one kind count from 0. Returns the index into Schedule::slots.
  int add_slot(SlotKind kind, int64_t bytes);

  Action action_of_unit(ActionKind kind, int unit) const;
  Action action_of_group(ActionKind kind, int group, int bucket = -1) const;

  /// Sets stream and channel by the action's kind; ids of -1 among the waits are left out.
  int add(Action action);

  void add_load_input();
  void add_forward(int unit, const GatheredParameters& parameters);
  void add_loss();

  Schedule take();

 private:
  const models::ModelSpec& spec_;
  const Strategy& strategy_;
  Layout layout_;
  Schedule schedule_;
  StreamClocks clocks_;
};

}  // namespace shardlens::planner
