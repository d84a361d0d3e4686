#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "planner/rules.h"
#include "planner/schedule.h"
#include "planner/step_builder.h"

namespace shardlens::planner {
namespace {

template <typename List>
bool has_index(const List& list, int index) {
  return index >= 0 && index < static_cast<int>(list.size());
}

/// What an action of one kind names, and the kinds of slots that it touches.
struct Shape {
  bool has_unit = false;
  bool has_group = false;
  bool has_bucket = false;
  std::string reads;  // one letter a slot: "GX" is one gradient shard and one receive buffer
  std::string writes;
};

class ActionRules {
 public:
  explicit ActionRules(const Schedule& schedule) : schedule_(schedule) {}

  void check() const {
    for (int id = 0; id < static_cast<int>(schedule_.actions.size()); ++id) check_action(id);
  }

 private:
  void check_action(int id) const {
    const Action& action = schedule_.actions[static_cast<size_t>(id)];
    check_indices(id, action);
    if (!is_allowed(action.kind)) fail(id, "the strategy has no such action");
    if (action.stream != stream_of(action.kind)) fail(id, "the kind has another stream");
    if (action.channel != channel_of(action.kind)) fail(id, "the kind has another channel");
    check_shape(id, action, shape_of(action));
    const int64_t bytes = expected_bytes(action);
    if (action.bytes != bytes) fail(id, fmt::format("it should say {} bytes", bytes));
    for (const int slot : action.writes) check_size(id, action, slot);
  }

  [[noreturn]] void fail(int id, const std::string& rule) const { fail_rule(schedule_, id, rule); }

  void check_indices(int id, const Action& action) const {
    if (action.unit != -1 && !has_index(schedule_.units, action.unit)) fail(id, "no such unit");
    if (action.group != -1 && !has_index(schedule_.groups, action.group)) fail(id, "no such group");
    if (action.bucket != -1) {
      const bool exists =
          action.group >= 0 &&
          has_index(schedule_.groups[static_cast<size_t>(action.group)].buckets, action.bucket);
      if (!exists) fail(id, "no such bucket");
    }
    for (const int wait : action.waits) {
      if (wait < 0 || wait >= id) fail(id, "it waits for an action that is not before it");
    }
    for (const std::vector<int>* slots : {&action.reads, &action.writes}) {
      for (const int slot : *slots) {
        if (!has_index(schedule_.slots, slot)) fail(id, "no such slot");
      }
    }
  }

  const Group& group_of(const Action& action) const {
    return schedule_.groups[static_cast<size_t>(action.group)];
  }

  const Bucket& bucket_of(const Action& action) const {
    return group_of(action).buckets[static_cast<size_t>(action.bucket)];
  }

  bool is_allowed(ActionKind kind) const {
    switch (kind) {
      case ActionKind::cast_shard:
      case ActionKind::reshard:
        return schedule_.has_unsharded_slots();
      case ActionKind::all_gather:
      case ActionKind::reduce_scatter:
        return schedule_.shards > 1;
      case ActionKind::all_reduce:
        return schedule_.world_size > schedule_.shards;
      case ActionKind::load_input:
      case ActionKind::forward:
      case ActionKind::loss:
      case ActionKind::backward:
      case ActionKind::optimizer_step:
        return true;
    }
    return false;
  }

  Shape shape_of(const Action& action) const {
    const bool has_group = action.group >= 0;
    const bool reads_parameters = schedule_.has_unsharded_slots() && has_group;
    switch (action.kind) {
      case ActionKind::load_input:
      case ActionKind::loss:
        return {};
      case ActionKind::cast_shard:
      case ActionKind::all_gather:
      case ActionKind::reshard:
        return {false, true, false, "", "U"};
      case ActionKind::forward:
        return {true, has_group, false, reads_parameters ? "U" : "", ""};
      case ActionKind::backward: {
        // Only the model knows whether its backward reads parameters.
        const bool reads = reads_parameters && !action.reads.empty();
        const bool writes = action.bucket >= 0;
        return {true, has_group, writes, reads ? "U" : "", writes ? "R" : ""};
      }
      case ActionKind::reduce_scatter:
        return {false, true, true, "R", action.writes.size() > 1 ? "GX" : "G"};
      case ActionKind::all_reduce:
        return {false, true, true, "R", "R"};
      case ActionKind::optimizer_step:
        return {false, true, true, schedule_.shards > 1 ? "G" : "R", ""};
    }
    return {};
  }

  std::string letters(const std::vector<int>& slots) const {
    std::string text;
    for (const int slot : slots) {
      text += schedule_.slots[static_cast<size_t>(slot)].name().front();
    }
    return text;
  }

  void check_shape(int id, const Action& action, const Shape& shape) const {
    if ((action.unit >= 0) != shape.has_unit) fail(id, "a unit is missing or too many");
    if ((action.group >= 0) != shape.has_group) fail(id, "a group is missing or too many");
    if ((action.bucket >= 0) != shape.has_bucket) fail(id, "a bucket is missing or too many");
    if (letters(action.reads) != shape.reads) fail(id, "it should read slots " + shape.reads);
    if (letters(action.writes) != shape.writes) fail(id, "it should write slots " + shape.writes);
    if (action.kind == ActionKind::all_reduce && action.reads != action.writes) {
      fail(id, "it works in place");
    }
  }

  int64_t expected_bytes(const Action& action) const {
    switch (action.kind) {
      case ActionKind::cast_shard:
      case ActionKind::all_gather:
        return group_of(action).parameter_bytes() / schedule_.shards;
      case ActionKind::reduce_scatter:
      case ActionKind::all_reduce:
        return bucket_of(action).gradient_bytes();
      case ActionKind::load_input:
        return std::max(action.bytes, int64_t{0});  // only the strategy knows the batch
      case ActionKind::reshard:
      case ActionKind::forward:
      case ActionKind::loss:
      case ActionKind::backward:
      case ActionKind::optimizer_step:
        return 0;
    }
    return 0;
  }

  void check_size(int id, const Action& action, int index) const {
    const Slot& slot = schedule_.slots[static_cast<size_t>(index)];
    int64_t needed = 0;
    switch (slot.kind) {
      case SlotKind::unsharded:
        needed = group_of(action).parameter_bytes();
        break;
      case SlotKind::reduce:
      case SlotKind::receive:
        needed = bucket_of(action).gradient_bytes();
        break;
      case SlotKind::gradient_shard:
        needed = bucket_of(action).gradient_bytes() / schedule_.shards;
        break;
    }
    if (slot.bytes < needed) {
      fail(id, fmt::format("slot {} is smaller than {} bytes", slot.name(), needed));
    }
  }

  const Schedule& schedule_;
};

}  // namespace

void check_actions(const Schedule& schedule) { ActionRules(schedule).check(); }

}  // namespace shardlens::planner
