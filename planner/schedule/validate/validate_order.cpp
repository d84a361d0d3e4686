#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "planner/schedule/schedule.h"
#include "planner/schedule/validate/rules.h"

namespace shardlens::planner {
namespace {

class OrderRules {
 public:
  explicit OrderRules(const Schedule& schedule) : schedule_(schedule) {
    for (const Group& group : schedule.groups) lives_.emplace_back(group.buckets.size());
    for (const Action& action : schedule.actions) {
      trains_ = trains_ || action.kind == ActionKind::backward;
      clips_ = clips_ || action.kind == ActionKind::clip;
    }
  }

  void check() {
    for (int id = 0; id < static_cast<int>(schedule_.actions.size()); ++id) check_action(id);
    check_end();
  }

 private:
  struct BucketLife {
    int microbatch = -1;  // that gave it gradients last
    bool reduced = false;
    bool replicated = false;
    bool summed = false;  // with those of earlier microbatches
    bool clipped = false;
    bool stepped = false;
    // Steps under offload. copied: the gradient, or the stepped masters, came to the host; cast: to
    // the parameters' dtype; renewed: the device's parameters are up to date.
    bool copied = false;
    bool cast = false;
    bool renewed = false;
  };

  [[noreturn]] void fail(int id, const std::string& rule) const { fail_rule(schedule_, id, rule); }

  int unit_count() const { return static_cast<int>(schedule_.units.size()); }

  BucketLife& life_of(const Action& action) {
    return lives_[static_cast<size_t>(action.group)][static_cast<size_t>(action.bucket)];
  }

  void check_action(int id) {
    const Action& action = schedule_.actions[static_cast<size_t>(id)];
    switch (action.kind) {
      case ActionKind::load_input:
        check_load(id, action);
        break;
      case ActionKind::forward:
        check_forward(id, action);
        break;
      case ActionKind::loss:
        check_microbatch(id, action);
        if (lost_ || next_forward_ != unit_count()) {
          fail(id, "the loss comes once, after the last unit");
        }
        lost_ = true;
        break;
      case ActionKind::recompute:
        check_recompute(id, action);
        break;
      case ActionKind::backward:
        check_backward(id, action);
        break;
      case ActionKind::reduce_scatter:
      case ActionKind::all_reduce:
        check_reduction(id, action);
        break;
      case ActionKind::accumulate:
        check_sum(id, life_of(action));
        break;
      case ActionKind::clip:
        check_clip(id, action);
        break;
      case ActionKind::optimizer_step:
        check_step(id, action, life_of(action));
        break;
      case ActionKind::h2d:
        if (action.group >= 0) check_copy_up(id, action);
        break;
      case ActionKind::d2h:
        if (action.group >= 0) check_copy_down(id, life_of(action));
        break;
      case ActionKind::cast_shard:
        check_cast(id, action);
        break;
      case ActionKind::all_gather:
      case ActionKind::reshard:
        break;  // the slot rules know whether it is its turn
    }
  }

  void check_microbatch(int id, const Action& action) const {
    if (action.microbatch != microbatch_) fail(id, "it is of another microbatch");
  }

  void check_load(int id, const Action& action) {
    const bool is_over = microbatch_ < 0 || (lost_ && (!trains_ || last_backward_ >= 0));
    if (!is_over || action.microbatch != microbatch_ + 1) {
      fail(id, "the input of a microbatch is loaded once, before all units");
    }
    end_microbatch(id);
    microbatch_ = action.microbatch;
    next_forward_ = 0;
    lost_ = false;
    last_backward_ = -1;
    segments_.clear();
    recomputed_.clear();
  }

  /// Checks that backward of every microbatch ends at the same unit.
  void end_microbatch(int id) {
    if (microbatch_ < 0 || !trains_) return;
    if (first_unit_ < 0) first_unit_ = last_backward_;
    if (last_backward_ != first_unit_) fail(id, "backward ends at another unit than before");
  }

  void check_forward(int id, const Action& action) {
    if (microbatch_ < 0) fail(id, "the input is not loaded");
    check_microbatch(id, action);
    if (action.unit != next_forward_) fail(id, "forward takes each unit once, in order");
    ++next_forward_;
    if (microbatch_ == 0) groups_of_units_.push_back(action.group);
    if (action.group != groups_of_units_[static_cast<size_t>(action.unit)]) {
      fail(id, "its unit had another group before");
    }
  }

  int following_unit() const { return last_backward_ < 0 ? unit_count() : last_backward_; }

  /// Checks recomputation: it goes in runs of units, each up to the unit whose backward comes next.
  void check_recompute(int id, const Action& action) {
    check_microbatch(id, action);
    if (!lost_) fail(id, "nothing goes back yet that would need it");
    const bool continues = !recomputed_.empty() && action.unit == recomputed_.back() + 1;
    const bool begins = recomputed_.empty() || recomputed_.front() >= following_unit();
    if (begins) recomputed_.clear();
    if (!(continues || begins) || action.unit >= following_unit()) {
      fail(id, "units are computed again in order, up to the next one of backward");
    }
    recomputed_.push_back(action.unit);
  }

  void check_backward(int id, const Action& action) {
    check_microbatch(id, action);
    if (!lost_) fail(id, "there is no loss to go back from");
    if (action.group != groups_of_units_[static_cast<size_t>(action.unit)]) {
      fail(id, "its unit has another group in forward");
    }
    const bool continues = action.unit == last_backward_;
    if (!continues && action.unit != following_unit() - 1) {
      fail(id, "backward takes each unit in one run, in falling order");
    }
    const bool was_recomputed = !recomputed_.empty() && recomputed_.front() < following_unit();
    if (!continues && was_recomputed && recomputed_.back() < action.unit) {
      fail(id, "the units computed again end before it");
    }
    if (!continues) segments_.clear();
    if (!segments_.insert(action.bucket).second) {
      fail(id, "the segments of a unit take each of its buckets once");
    }
    last_backward_ = action.unit;
    if (action.bucket >= 0) begin_bucket(id, life_of(action));
  }

  void begin_bucket(int id, BucketLife& life) const {
    if (life.microbatch != microbatch_) life = {.microbatch = microbatch_, .stepped = life.stepped};
    if (life.reduced || life.stepped) fail(id, "its bucket is reduced or stepped already");
  }

  /// Checks a reduction: first between shards, then between replicas; or only between replicas, for
  /// a whole bucket.
  void check_reduction(int id, const Action& action) {
    if (action.group < 0) return check_norm(id);
    BucketLife& life = life_of(action);
    const bool is_between_replicas = action.channel == Channel::replicate;
    const bool is_ready = is_between_replicas ? life.reduced && !life.replicated
                                              : life.microbatch >= 0 && !life.reduced;
    if (!is_ready) fail(id, "a bucket is reduced once, after its gradients");
    (is_between_replicas ? life.replicated : life.reduced) = true;
  }

  void check_sum(int id, BucketLife& life) const {
    if (!is_reduced_in_microbatch(life) || life.summed) {
      fail(id, "a sum takes what is reduced, once");
    }
    life.summed = true;
  }

  /// True if the slot that the action reads includes the last microbatch.
  bool is_whole(const Action& action, const BucketLife& life) const {
    if (!is_reduced(life)) return false;
    const bool is_sum = schedule_.slot(action.reads.front()).kind == SlotKind::gradient_sum;
    return life.summed || !is_sum;
  }

  void check_norm(int id) {
    if (is_norm_known_) fail(id, "the norm is known already");
    is_norm_known_ = true;
  }

  void check_clip(int id, const Action& action) {
    if (is_factor_known_) fail(id, "the factor is known already");
    if (action.group < 0) {
      if (schedule_.shards > 1 && !is_norm_known_) fail(id, "the norm is not known yet");
      is_factor_known_ = true;
      return;
    }
    BucketLife& life = life_of(action);
    if (is_norm_known_ || !is_whole(action, life) || life.clipped) {
      fail(id, "a bucket counts once, after its reduction");
    }
    life.clipped = true;
  }

  bool is_reduced(const BucketLife& life) const {
    return life.microbatch + 1 == schedule_.microbatches && is_reduced_in_microbatch(life);
  }

  bool is_reduced_in_microbatch(const BucketLife& life) const {
    if (life.microbatch < 0) return false;
    if (schedule_.world_size == 1) return true;
    const bool is_between_replicas = schedule_.shards > 1 && schedule_.replicas() > 1;
    return life.reduced && (life.replicated || !is_between_replicas);
  }

  void check_step(int id, const Action& action, BucketLife& life) const {
    if (!is_whole(action, life) || life.stepped) {
      fail(id, "a bucket is stepped once, after its reduction");
    }
    if (clips_ && !(is_factor_known_ && life.clipped)) fail(id, "the norm is not known yet");
    life.stepped = true;
  }

  void check_cast(int id, const Action& action) {
    if (action.bucket >= 0) return check_host_cast(id, action);
    check_gather(id, action);
  }

  void check_gather(int id, const Action& action) const {
    const std::vector<BucketLife>& lives = lives_[static_cast<size_t>(action.group)];
    const bool any_stepped = std::any_of(lives.begin(), lives.end(),
                                         [](const BucketLife& life) { return life.stepped; });
    if (any_stepped) fail(id, "a bucket of its group holds the next step's parameters already");
  }

  /// Checks the cast of a stepped bucket to the parameters' dtype, which later gathers read.
  void check_host_cast(int id, const Action& action) {
    BucketLife& life = life_of(action);
    if (!is_back(life) || life.cast) fail(id, "a bucket is cast once, after its step");
    life.cast = true;
  }

  /// True if the host has the stepped masters of the bucket.
  bool is_back(const BucketLife& life) const {
    return life.stepped && (schedule_.steps_on_host() || life.copied);
  }

  void check_copy_up(int id, const Action& action) {
    if (action.bucket < 0) return check_gather(id, action);
    BucketLife& life = life_of(action);
    if (!action.writes.empty()) {  // masters that come to be stepped
      if (life.stepped) fail(id, "its bucket is stepped already");
      return;
    }
    const bool is_cast = schedule_.bucket_of(action).dtype == kMasterDType || life.cast;
    if (!is_back(life) || !is_cast || life.renewed) fail(id, "it comes once, after its step");
    life.renewed = true;
  }

  void check_copy_down(int id, BucketLife& life) const {
    const bool is_ready =
        schedule_.steps_on_host() ? is_reduced_in_microbatch(life) : life.stepped && !life.copied;
    if (!is_ready) fail(id, "a bucket is copied once, after its reduction or step");
    life.copied = true;
  }

  /// True if the next step's gathers find the stepped bucket.
  bool is_published(const BucketLife& life, const Bucket& bucket) const {
    if (schedule_.offload == Offload::none) return true;
    const bool is_cast = bucket.dtype == kMasterDType || life.cast;
    return is_back(life) && is_cast && (schedule_.gathers_from_host() || life.renewed);
  }

  void check_end() {
    if (!lost_) fail(-1, "it has no loss");
    if (!trains_) return;
    end_microbatch(-1);
    if (microbatch_ + 1 != schedule_.microbatches) fail(-1, "a microbatch is missing");
    for (size_t group = 0; group < lives_.size(); ++group) {
      for (size_t bucket = 0; bucket < lives_[group].size(); ++bucket) {
        const Bucket& described = schedule_.groups[group].buckets[bucket];
        const BucketLife& life = lives_[group][bucket];
        if (life.stepped && !is_published(life, described)) {
          fail(-1, fmt::format("bucket {} of group {} is stepped where no gather sees it", bucket,
                               schedule_.groups[group].name));
        }
        if (life.stepped != described.frozen) continue;
        fail(-1, fmt::format("bucket {} of group {} is {}", bucket, schedule_.groups[group].name,
                             described.frozen ? "frozen, yet stepped" : "never stepped"));
      }
    }
  }

  const Schedule& schedule_;
  std::vector<std::vector<BucketLife>> lives_;
  std::vector<int> groups_of_units_;
  bool trains_ = false;
  bool clips_ = false;
  bool is_norm_known_ = false;  // with the contributions of all shards
  bool is_factor_known_ = false;

  // State of the microbatch that the pass has come to.
  int microbatch_ = -1;
  bool lost_ = false;
  int next_forward_ = 0;
  int first_unit_ = -1;  // of backward, in the first microbatch
  int last_backward_ = -1;
  std::set<int> segments_;       // of the unit that backward is in: their buckets
  std::vector<int> recomputed_;  // the last run
};

}  // namespace

void check_order(const Schedule& schedule) { OrderRules(schedule).check(); }

}  // namespace shardlens::planner
