#include <fmt/format.h>

#include <string>
#include <vector>

#include "planner/rules.h"
#include "planner/schedule.h"
#include "planner/stream_clocks.h"

namespace shardlens::planner {
namespace {

class SlotRules {
 public:
  explicit SlotRules(const Schedule& schedule)
      : schedule_(schedule), lives_(schedule.slots.size()) {}

  void check() {
    for (int id = 0; id < static_cast<int>(schedule_.actions.size()); ++id) {
      const Action& action = schedule_.actions[static_cast<size_t>(id)];
      clocks_.append(action.stream, action.waits);
      for (const int slot : action.reads) read(id, action, slot);
      for (const int slot : action.writes) write(id, action, slot);
      if (action.kind == ActionKind::cast_shard) casts_.push_back(id);
      if (action.kind == ActionKind::optimizer_step) check_step_follows_casts(id, action);
    }
    for (size_t i = 0; i < lives_.size(); ++i) {
      const SlotKind kind = schedule_.slots[i].kind;
      const bool lasts = kind == SlotKind::kept_shard || kind == SlotKind::norm;
      if (lives_[i].held && !lasts) {
        fail(-1, "slot " + schedule_.slots[i].name() + " is never freed");
      }
    }
  }

 private:
  struct SlotLife {
    bool held = false;
    bool whole = true;  // an unsharded slot: holds every rank's range
    int group = -1;
    int bucket = -1;
    int write = -1;          // the last one; those before it are ordered before it
    std::vector<int> reads;  // since then
  };

  [[noreturn]] void fail(int id, const std::string& rule) const { fail_rule(schedule_, id, rule); }

  const Slot& slot_at(int index) const { return schedule_.slots[static_cast<size_t>(index)]; }

  void expect_after(int id, int earlier, int slot) const {
    if (earlier < 0 || earlier == id || clocks_.before(earlier, id)) return;
    fail(id, fmt::format("nothing orders it after action {}, which uses slot {} too", earlier,
                         slot_at(slot).name()));
  }

  static bool is_of_group(SlotKind kind) {
    return kind == SlotKind::unsharded || kind == SlotKind::kept_shard;
  }

  void expect_holds(int id, const SlotLife& life, const Action& action, int slot) const {
    const SlotKind kind = slot_at(slot).kind;
    const bool same_group = kind == SlotKind::norm || life.group == action.group;
    const bool same_bucket =
        kind == SlotKind::norm || is_of_group(kind) || life.bucket == action.bucket;
    if (life.held && same_group && same_bucket) return;
    fail(id, fmt::format("slot {} does not hold what it needs", slot_at(slot).name()));
  }

  void read(int id, const Action& action, int slot) {
    SlotLife& life = lives_[static_cast<size_t>(slot)];
    expect_holds(id, life, action, slot);
    if (!life.whole) fail(id, "nothing gathers what it reads");
    expect_after(id, life.write, slot);
    life.reads.push_back(id);
    if (frees(action, slot_at(slot).kind)) life.held = false;
  }

  /// Whether nobody needs what the slot holds once the action has read it.
  static bool frees(const Action& action, SlotKind kind) {
    switch (action.kind) {
      case ActionKind::reduce_scatter:
      case ActionKind::accumulate:
        return true;
      case ActionKind::optimizer_step:
        return kind != SlotKind::norm;
      default:
        return false;
    }
  }

  /// Whether the action changes what the slot holds, and does not begin to hold something new.
  bool modifies(const Action& action, const SlotLife& life, SlotKind kind) const {
    switch (action.kind) {
      case ActionKind::all_gather:
      case ActionKind::all_reduce:
        return true;
      case ActionKind::reshard:
        return kind == SlotKind::unsharded;
      case ActionKind::clip:
        return life.held;
      case ActionKind::backward:
      case ActionKind::accumulate:
        return life.held && life.group == action.group && life.bucket == action.bucket;
      default:
        return false;
    }
  }

  void write(int id, const Action& action, int slot) {
    SlotLife& life = lives_[static_cast<size_t>(slot)];
    const SlotKind kind = slot_at(slot).kind;
    if (modifies(action, life, kind)) {
      expect_holds(id, life, action, slot);
    } else if (life.held) {
      fail(id, fmt::format("slot {} is not free", slot_at(slot).name()));
    }
    expect_after(id, life.write, slot);
    for (const int reader : life.reads) expect_after(id, reader, slot);
    life.write = id;
    life.reads.clear();
    life.group = action.group;
    life.bucket = is_of_group(kind) ? -1 : action.bucket;
    life.held = holds_after(action, kind);
    life.whole = action.kind != ActionKind::cast_shard || is_whole_after_cast(action);
  }

  static bool holds_after(const Action& action, SlotKind kind) {
    // What a communicator receives into, and a cast for one step, mean nothing afterwards.
    if (kind == SlotKind::receive || kind == SlotKind::master_gradient) return false;
    return action.kind != ActionKind::reshard || kind == SlotKind::kept_shard;
  }

  bool is_whole_after_cast(const Action& action) const {
    const int shards = action.reads.empty() ? schedule_.shards : schedule_.regather_shards;
    return shards == 1 || schedule_.groups[static_cast<size_t>(action.group)].shared_bytes() == 0;
  }

  /// A cast reads the masters that the optimizer writes.
  void check_step_follows_casts(int id, const Action& action) const {
    for (const int cast : casts_) {
      const bool same_group = schedule_.actions[static_cast<size_t>(cast)].group == action.group;
      if (same_group && !clocks_.before(cast, id)) {
        fail(id, fmt::format("nothing orders it after action {}, which casts its group", cast));
      }
    }
  }

  const Schedule& schedule_;
  StreamClocks clocks_;
  std::vector<SlotLife> lives_;
  std::vector<int> casts_;
};

}  // namespace

void check_slots(const Schedule& schedule) { SlotRules(schedule).check(); }

}  // namespace shardlens::planner
