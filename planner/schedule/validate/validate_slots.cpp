#include <fmt/format.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "planner/schedule/schedule.h"
#include "planner/schedule/stream_clocks.h"
#include "planner/schedule/validate/rules.h"

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
      if (fills_own_range(action)) gathers_.push_back(id);
      if (is_norm_copy(action)) norm_copy_ = id;
      if (action.kind == ActionKind::clip) clips_ = true;
      if (action.kind == ActionKind::optimizer_step) check_step(id, action);
      if (is_renewal(action)) check_follows_gathers(id, action);
      if (changes_state(action)) check_follows_state(id, action);
      if (action.stream == Stream::main) last_on_main_ = id;
    }
    check_freed();
    check_ends();
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
    if (earlier < 0 || earlier == id || clocks_.precedes(earlier, id)) return;
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

  /// True if nobody needs what the slot holds once the action has read it.
  static bool frees(const Action& action, SlotKind kind) {
    switch (action.kind) {
      case ActionKind::reduce_scatter:
      case ActionKind::accumulate:
        return true;
      case ActionKind::d2h:
      case ActionKind::optimizer_step:
        return kind != SlotKind::norm;
      default:
        return false;
    }
  }

  /// True if the action changes what the slot holds, rather than beginning to hold something new.
  bool modifies(const Action& action, const SlotLife& life, SlotKind kind) const {
    switch (action.kind) {
      case ActionKind::all_gather:
      case ActionKind::all_reduce:
        return true;
      case ActionKind::reshard:
        return kind == SlotKind::unsharded;
      case ActionKind::optimizer_step:
        return kind == SlotKind::master;
      case ActionKind::clip:
        return life.held;
      case ActionKind::backward:
      case ActionKind::accumulate:
        return life.held && life.group == action.group && life.bucket == action.bucket;
      default:
        return false;
    }
  }

  /// Checks a slot that does not last: its memory was the main stream's before that.
  void check_taken(int id, int slot) const {
    if (last_on_main_ >= 0 && clocks_.precedes(last_on_main_, id)) return;
    fail(id, fmt::format("nothing orders it after action {}, which may use the memory of slot {}",
                         last_on_main_, slot_at(slot).name()));
  }

  void check_freed() const {
    for (size_t i = 0; i < lives_.size(); ++i) {
      const SlotKind kind = schedule_.slots[i].kind;
      const bool lasts = kind == SlotKind::kept_shard || kind == SlotKind::norm;
      if (lives_[i].held && !lasts) {
        fail(-1, "slot " + schedule_.slots[i].name() + " is never freed");
      }
    }
  }

  /// Checks that slots that do not last are read last on the main stream (check_freed() has found
  /// that they are read), since their memory then goes back to the main stream.
  void check_ends() const {
    const SlotLives lives = schedule_.slot_lives();
    for (size_t id = 0; id < lives.end.size(); ++id) {
      if (lives.end[id].empty() || schedule_.actions[id].stream == Stream::main) continue;
      fail(static_cast<int>(id), fmt::format("slot {} ends on another stream than main",
                                             slot_at(lives.end[id].front()).name()));
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
    if (!slot_at(slot).lasts()) check_taken(id, slot);
    life.write = id;
    life.reads.clear();
    life.group = action.group;
    life.bucket = is_of_group(kind) ? -1 : action.bucket;
    life.held = holds_after(action, kind);
    life.whole = !fills_own_range(action) || is_whole_after(action);
  }

  static bool holds_after(const Action& action, SlotKind kind) {
    // A communicator's receive buffer and a gradient cast for one step hold nothing of use
    // afterwards.
    if (kind == SlotKind::receive || kind == SlotKind::master_gradient) return false;
    return action.kind != ActionKind::reshard || kind == SlotKind::kept_shard;
  }

  /// True if the action copies this rank's range of a group to an unsharded slot.
  static bool fills_own_range(const Action& action) {
    const bool copies = action.kind == ActionKind::cast_shard || action.kind == ActionKind::h2d;
    return copies && action.group >= 0 && action.bucket < 0;
  }

  bool is_whole_after(const Action& action) const {
    const int shards = action.reads.empty() ? schedule_.shards : schedule_.regather_shards;
    return shards == 1 || schedule_.groups[static_cast<size_t>(action.group)].shared_bytes() == 0;
  }

  /// True if the action renews the device's own parameters.
  static bool is_renewal(const Action& action) {
    return action.kind == ActionKind::h2d && action.bucket >= 0 && action.writes.empty();
  }

  static bool is_norm_copy(const Action& action) {
    return action.kind == ActionKind::d2h && action.group < 0;
  }

  /// True if the action changes a bucket's own state: masters, their cast, the device's parameters.
  static bool changes_state(const Action& action) {
    switch (action.kind) {
      case ActionKind::optimizer_step:
        return true;
      case ActionKind::h2d:
      case ActionKind::cast_shard:
        return action.bucket >= 0;
      case ActionKind::d2h:
        return action.bucket >= 0 && action.writes.empty();
      default:
        return false;
    }
  }

  void check_follows_state(int id, const Action& action) {
    const auto [found, is_first] = states_.try_emplace({action.group, action.bucket}, id);
    if (is_first) return;
    const int before = std::exchange(found->second, id);
    if (clocks_.precedes(before, id)) return;
    fail(id, fmt::format("nothing orders it after action {}, which it goes on from", before));
  }

  void check_step(int id, const Action& action) const {
    check_follows_gathers(id, action);
    if (action.stream != Stream::host || !clips_) return;
    if (norm_copy_ < 0 || !clocks_.precedes(norm_copy_, id)) {
      fail(id, "nothing orders it after the copy of the norm");
    }
  }

  /// Checks that the action follows the gathers of its group, which read what the optimizer writes.
  void check_follows_gathers(int id, const Action& action) const {
    for (const int gather : gathers_) {
      const bool same_group = schedule_.actions[static_cast<size_t>(gather)].group == action.group;
      if (same_group && !clocks_.precedes(gather, id)) {
        fail(id, fmt::format("nothing orders it after action {}, which gathers its group", gather));
      }
    }
  }

  const Schedule& schedule_;
  StreamClocks clocks_;
  std::vector<SlotLife> lives_;
  std::vector<int> gathers_;
  bool clips_ = false;
  int last_on_main_ = -1;
  int norm_copy_ = -1;
  std::map<std::pair<int, int>, int> states_;  // by group and bucket: the last to change it
};

}  // namespace

void check_slots(const Schedule& schedule) { SlotRules(schedule).check(); }

}  // namespace shardlens::planner
