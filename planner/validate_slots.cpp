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
      if (lives_[i].held) fail(-1, "slot " + schedule_.slots[i].name() + " is never freed");
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

  void expect_holds(int id, const SlotLife& life, const Action& action, int slot) const {
    const bool same_bucket =
        slot_at(slot).kind == SlotKind::unsharded || life.bucket == action.bucket;
    if (life.held && life.group == action.group && same_bucket) return;
    fail(id, fmt::format("slot {} does not hold what it needs", slot_at(slot).name()));
  }

  void read(int id, const Action& action, int slot) {
    SlotLife& life = lives_[static_cast<size_t>(slot)];
    expect_holds(id, life, action, slot);
    if (!life.whole) fail(id, "nothing gathers what it reads");
    expect_after(id, life.write, slot);
    life.reads.push_back(id);
    const bool frees =
        action.kind == ActionKind::reduce_scatter || action.kind == ActionKind::optimizer_step;
    if (frees) life.held = false;
  }

  /// Whether the action changes what the slot holds, and does not begin to hold something new.
  bool modifies(const Action& action, const SlotLife& life) const {
    switch (action.kind) {
      case ActionKind::all_gather:
      case ActionKind::reshard:
      case ActionKind::all_reduce:
        return true;
      default:
        break;
    }
    return action.kind == ActionKind::backward && life.held && life.group == action.group &&
           life.bucket == action.bucket;
  }

  void write(int id, const Action& action, int slot) {
    SlotLife& life = lives_[static_cast<size_t>(slot)];
    if (modifies(action, life)) {
      expect_holds(id, life, action, slot);
    } else if (life.held) {
      fail(id, fmt::format("slot {} is not free", slot_at(slot).name()));
    }
    expect_after(id, life.write, slot);
    for (const int reader : life.reads) expect_after(id, reader, slot);
    life.write = id;
    life.reads.clear();
    life.group = action.group;
    life.bucket = slot_at(slot).kind == SlotKind::unsharded ? -1 : action.bucket;
    // What a communicator receives into means nothing once the reduction is done.
    life.held = action.kind != ActionKind::reshard && slot_at(slot).kind != SlotKind::receive;
    life.whole = action.kind != ActionKind::cast_shard || schedule_.shards == 1;
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
