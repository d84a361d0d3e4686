#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "planner/rules.h"
#include "planner/schedule.h"

namespace shardlens::planner {
namespace {

class OrderRules {
 public:
  explicit OrderRules(const Schedule& schedule) : schedule_(schedule) {
    for (const Group& group : schedule.groups) lives_.emplace_back(group.buckets.size());
    trains_ = std::any_of(schedule.actions.begin(), schedule.actions.end(),
                          [](const Action& action) { return action.kind == ActionKind::backward; });
  }

  void check() {
    for (int id = 0; id < static_cast<int>(schedule_.actions.size()); ++id) check_action(id);
    check_end();
  }

 private:
  struct BucketLife {
    bool begun = false;
    bool reduced = false;
    bool stepped = false;
  };

  [[noreturn]] void fail(int id, const std::string& rule) const { fail_rule(schedule_, id, rule); }

  BucketLife& life_of(const Action& action) {
    return lives_[static_cast<size_t>(action.group)][static_cast<size_t>(action.bucket)];
  }

  void check_action(int id) {
    const Action& action = schedule_.actions[static_cast<size_t>(id)];
    switch (action.kind) {
      case ActionKind::load_input:
        if (loaded_ || next_forward_ > 0) fail(id, "the input is loaded once, before all units");
        loaded_ = true;
        break;
      case ActionKind::forward:
        check_forward(id, action);
        break;
      case ActionKind::loss:
        if (lost_ || next_forward_ != static_cast<int>(schedule_.units.size())) {
          fail(id, "the loss comes once, after the last unit");
        }
        lost_ = true;
        break;
      case ActionKind::backward:
        check_backward(id, action);
        break;
      case ActionKind::reduce_scatter:
      case ActionKind::all_reduce:
        check_reduction(id, life_of(action));
        break;
      case ActionKind::optimizer_step:
        check_step(id, life_of(action));
        break;
      case ActionKind::cast_shard:
        check_cast(id, action);
        break;
      case ActionKind::all_gather:
      case ActionKind::reshard:
        break;  // the slot rules know whether it is its turn
    }
  }

  void check_forward(int id, const Action& action) {
    if (!loaded_) fail(id, "the input is not loaded");
    if (action.unit != next_forward_) fail(id, "forward takes each unit once, in order");
    ++next_forward_;
    groups_of_units_.push_back(action.group);
  }

  void check_backward(int id, const Action& action) {
    if (!lost_) fail(id, "there is no loss to go back from");
    if (action.group != groups_of_units_[static_cast<size_t>(action.unit)]) {
      fail(id, "its unit has another group in forward");
    }
    const int following =
        last_backward_ < 0 ? static_cast<int>(schedule_.units.size()) : last_backward_;
    const bool continues = action.unit == last_backward_;
    if (!continues && action.unit != following - 1) {
      fail(id, "backward takes each unit in one run, in falling order");
    }
    if (continues && action.bucket <= last_bucket_) {
      fail(id, "the segments of a unit take its buckets in order");
    }
    last_backward_ = action.unit;
    last_bucket_ = action.bucket;
    if (action.bucket < 0) return;
    BucketLife& life = life_of(action);
    if (life.reduced || life.stepped) fail(id, "its bucket is reduced or stepped already");
    life.begun = true;
  }

  void check_reduction(int id, BucketLife& life) const {
    if (!life.begun || life.reduced) fail(id, "a bucket is reduced once, after its gradients");
    life.reduced = true;
  }

  void check_step(int id, BucketLife& life) const {
    const bool is_ready = schedule_.world_size == 1 ? life.begun : life.reduced;
    if (!is_ready || life.stepped) fail(id, "a bucket is stepped once, after its reduction");
    life.stepped = true;
  }

  void check_cast(int id, const Action& action) const {
    const std::vector<BucketLife>& lives = lives_[static_cast<size_t>(action.group)];
    const bool any_stepped = std::any_of(lives.begin(), lives.end(),
                                         [](const BucketLife& life) { return life.stepped; });
    if (any_stepped) fail(id, "a bucket of its group holds the next step's parameters already");
  }

  void check_end() const {
    if (!lost_) fail(-1, "it has no loss");
    if (!trains_) return;
    if (last_backward_ != 0) fail(-1, "backward does not reach the first unit");
    for (size_t group = 0; group < lives_.size(); ++group) {
      for (size_t bucket = 0; bucket < lives_[group].size(); ++bucket) {
        if (lives_[group][bucket].stepped) continue;
        fail(-1, fmt::format("bucket {} of group {} is never stepped", bucket,
                             schedule_.groups[group].name));
      }
    }
  }

  const Schedule& schedule_;
  std::vector<std::vector<BucketLife>> lives_;
  std::vector<int> groups_of_units_;
  bool trains_ = false;
  bool loaded_ = false;
  bool lost_ = false;
  int next_forward_ = 0;
  int last_backward_ = -1;
  int last_bucket_ = -1;
};

}  // namespace

void check_order(const Schedule& schedule) { OrderRules(schedule).check(); }

}  // namespace shardlens::planner
