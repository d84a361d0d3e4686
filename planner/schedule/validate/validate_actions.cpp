#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <vector>

#include "planner/schedule/schedule.h"
#include "planner/schedule/step_builder.h"
#include "planner/schedule/validate/rules.h"

namespace shardlens::planner {
namespace {

template <typename List>
bool has_index(const List& list, int index) {
  return index >= 0 && index < static_cast<int>(list.size());
}

/// The fields that an action of one kind must have, and the kinds of slots that it may touch.
struct Shape {
  bool has_unit = false;
  bool has_group = false;
  bool has_bucket = false;
  /// One letter stands for a slot's kind; the action reads those before the arrow: "R>GX" reads
  /// a reduce slot, and writes a gradient shard and a receive buffer.
  std::vector<std::string> slots{};
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
    if (!is_allowed(action)) fail(id, "the strategy has no such action");
    if (action.stream != stream_of(schedule_, action)) fail(id, "the kind has another stream");
    if (!is_channel_of(action)) fail(id, "the kind has another channel");
    if (action.microbatch < 0 || action.microbatch >= schedule_.microbatches) {
      fail(id, "no such microbatch");
    }
    check_shape(id, action, shape_of(action));
    const int64_t bytes = expected_bytes(action);
    if (action.bytes != bytes) fail(id, fmt::format("it should say {} bytes", bytes));
    for (const int slot : action.writes) check_size(id, action, slot);
    check_memory(id, action);
  }

  /// Checks that only copies cross between host and device memory.
  void check_memory(int id, const Action& action) const {
    const bool is_host = action.stream == Stream::host;
    const bool reads_host = is_host || action.kind == ActionKind::h2d;
    const bool writes_host = is_host || action.kind == ActionKind::d2h;
    for (const int slot : action.reads) expect_memory(id, slot, reads_host);
    for (const int slot : action.writes) expect_memory(id, slot, writes_host);
  }

  void expect_memory(int id, int slot, bool on_host) const {
    if (schedule_.slot(slot).on_host == on_host) return;
    fail(id,
         fmt::format("slot {} is not in the memory that it works on", schedule_.slot(slot).name()));
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

  bool is_channel_of(const Action& action) const {
    if (action.channel == Channel::regather) {
      return action.kind == ActionKind::all_gather && schedule_.regather_shards > 0;
    }
    if (action.kind == ActionKind::all_reduce && action.channel == Channel::replicate) return true;
    return action.channel == channel_of(action.kind);
  }

  bool is_allowed(const Action& action) const {
    switch (action.kind) {
      case ActionKind::h2d:
      case ActionKind::d2h:
        return schedule_.offload != Offload::none;
      case ActionKind::cast_shard:
        return schedule_.has_unsharded_slots() && (action.bucket >= 0 || casts_to_gather());
      case ActionKind::reshard:
        return schedule_.has_unsharded_slots();
      case ActionKind::all_gather:
      case ActionKind::reduce_scatter:
        return schedule_.shards > 1;
      case ActionKind::all_reduce:
        return schedule_.world_size > 1;
      case ActionKind::accumulate:
        return schedule_.microbatches > 1;
      case ActionKind::load_input:
      case ActionKind::forward:
      case ActionKind::loss:
      case ActionKind::recompute:
      case ActionKind::backward:
      case ActionKind::clip:
      case ActionKind::optimizer_step:
        return true;
    }
    return false;
  }

  /// True if gathers may begin with a cast. Shards that the host keeps are copied instead, but
  /// parts that ranks keep between them are on the device, and are cast.
  bool casts_to_gather() const {
    return !schedule_.gathers_from_host() || schedule_.regather_shards > 0;
  }

  Shape shape_of(const Action& action) const {
    const bool has_group = action.group >= 0;
    const bool has_bucket = action.bucket >= 0;
    const bool reads_parameters = schedule_.has_unsharded_slots() && has_group;
    switch (action.kind) {
      case ActionKind::load_input:
      case ActionKind::loss:
        return {false, false, false, {">"}};
      case ActionKind::h2d:
        if (!has_group) return {false, false, false, {"N>N"}};
        return {false, true, has_bucket, {has_bucket ? renewal_slots() : ">U"}};
      case ActionKind::d2h:
        if (!has_group) return {false, false, false, {"N>"}};
        return {false, true, true, copies_down()};
      case ActionKind::cast_shard:
        if (has_bucket) return {false, true, true, {">"}};
        if (schedule_.gathers_from_host()) return {false, true, false, {"K>U"}};
        return {false, true, false, unless_kept(">U", "K>U")};
      case ActionKind::all_gather:
        return {false, true, false, {">U"}};
      case ActionKind::reshard:
        return {false, true, false, unless_kept(">U", ">UK")};
      case ActionKind::forward:
      case ActionKind::recompute:
        return {true, has_group, false, {reads_parameters ? "U>" : ">"}};
      case ActionKind::backward: {
        // Only the model knows whether its backward reads parameters.
        const std::string reads = reads_parameters && !action.reads.empty() ? "U>" : ">";
        return {true, has_group, has_bucket, {has_bucket ? reads + "R" : reads}};
      }
      case ActionKind::reduce_scatter:
        return {false, true, true, {"R>R", "R>RX", "R>G", "R>GX"}};
      case ActionKind::all_reduce:
        if (!has_group) return {false, false, false, {"N>N"}};
        return {false, true, true, {"R>R", "G>G"}};
      case ActionKind::accumulate:
        return {false, true, true, {"R>A", "G>A"}};
      case ActionKind::clip:
        if (!has_group) return {false, false, false, {">N"}};
        return {false, true, true, {"R>N", "G>N", "A>N"}};
      case ActionKind::optimizer_step:
        if (!has_bucket) return {false, true, true, {}};
        return {false, true, true, optimizer_slots(action)};
    }
    return {};
  }

  std::vector<std::string> unless_kept(const char* plain, const char* with_kept) const {
    if (schedule_.regather_shards == 0) return {plain};
    return {plain, with_kept};
  }

  /// Returns the slots of an H2D after a step: masters visit the device, or its own parameters are
  /// renewed.
  std::string renewal_slots() const { return schedule_.offload == Offload::params ? ">M" : ">"; }

  std::vector<std::string> copies_down() const {
    if (schedule_.steps_on_host()) return {"G>G", "R>G"};
    return {"M>"};
  }

  /// Returns the slots that an optimizer step may touch. A gradient in another dtype than the
  /// masters' is cast first. A host that steps knows the norm, so it reads no norm slot.
  std::vector<std::string> optimizer_slots(const Action& action) const {
    const bool on_host = schedule_.steps_on_host();
    const bool is_whole = schedule_.shards_of(schedule_.bucket_of(action)) == 1;
    const bool is_summed = schedule_.microbatches > 1 && (!is_whole || on_host);
    const std::string cast = schedule_.reduce_dtype == kMasterDType ? ">" : ">F";
    const std::string visitor = schedule_.offload == Offload::params ? "M" : "";
    std::vector<std::string> slots;
    for (const std::string held : {"", "N"}) {
      if (on_host && held == "N") continue;
      if (!on_host) slots.push_back("R" + held + cast + visitor);
      if (on_host || !is_whole) slots.push_back("G" + held + cast + visitor);
      if (is_summed) slots.push_back("A" + held + ">" + visitor);
    }
    return slots;
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
    const std::string slots = letters(action.reads) + ">" + letters(action.writes);
    if (std::count(shape.slots.begin(), shape.slots.end(), slots) == 0) {
      fail(id,
           fmt::format("it should touch slots {}, not {}", fmt::join(shape.slots, " or "), slots));
    }
    if (action.kind == ActionKind::all_reduce && action.reads != action.writes) {
      fail(id, "it works in place");
    }
  }

  int64_t gathered_bytes(const Action& action) const {
    const bool regathers = action.channel == Channel::regather || !action.reads.empty();
    const int shards = regathers ? schedule_.regather_shards : schedule_.shards;
    const int64_t shared = group_of(action).shared_bytes();
    const int64_t whole = group_of(action).parameter_bytes() - shared;
    return shared / shards + (action.kind == ActionKind::all_gather ? 0 : whole);
  }

  int64_t parameter_shard_bytes(const Action& action) const {
    const Bucket& bucket = schedule_.bucket_of(action);
    return schedule_.shard_numel(bucket) * bytes_of(bucket.dtype);
  }

  int64_t copied_bytes(const Action& action) const {
    const bool is_gather = action.group >= 0 && action.bucket < 0;
    if (is_gather) return gathered_bytes(action);
    if (!action.writes.empty()) return schedule_.used_bytes(action, action.writes.front());
    if (!action.reads.empty()) return schedule_.used_bytes(action, action.reads.front());
    return parameter_shard_bytes(action);
  }

  int64_t expected_bytes(const Action& action) const {
    switch (action.kind) {
      case ActionKind::h2d:
      case ActionKind::d2h:
        return copied_bytes(action);
      case ActionKind::cast_shard:
        return action.bucket < 0 ? gathered_bytes(action) : parameter_shard_bytes(action);
      case ActionKind::all_gather:
        return gathered_bytes(action);
      case ActionKind::reduce_scatter:
      case ActionKind::all_reduce:
        return schedule_.used_bytes(action, action.reads.front());
      case ActionKind::load_input:
        return std::max(action.bytes, int64_t{0});  // only the strategy knows the batch
      default:
        return 0;
    }
  }

  void check_size(int id, const Action& action, int index) const {
    const Slot& slot = schedule_.slot(index);
    const int64_t needed = schedule_.used_bytes(action, index);
    if (slot.bytes < needed) {
      fail(id, fmt::format("slot {} is smaller than {} bytes", slot.name(), needed));
    }
  }

  const Schedule& schedule_;
};

}  // namespace

void check_actions(const Schedule& schedule) { ActionRules(schedule).check(); }

}  // namespace shardlens::planner
