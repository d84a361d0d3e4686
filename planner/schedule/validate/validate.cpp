#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "base/check.h"
#include "planner/schedule/layout.h"
#include "planner/schedule/schedule.h"
#include "planner/schedule/validate/rules.h"

namespace shardlens::planner {
namespace {

class TableRules {
 public:
  explicit TableRules(const Schedule& schedule) : schedule_(schedule) {}

  void check() {
    check_ranks();
    check_names(schedule_.units, "unit");
    std::vector<std::string> names;
    for (const Group& group : schedule_.groups) names.push_back(group.name);
    check_names(names, "group");
    for (const Group& group : schedule_.groups) {
      if (group.buckets.empty()) fail("group " + group.name + " has no bucket");
      for (const Bucket& bucket : group.buckets) check_bucket(group, bucket);
    }
    check_slots();
  }

 private:
  [[noreturn]] void fail(const std::string& rule) const { fail_rule(schedule_, -1, rule); }

  void check_ranks() const {
    const int world_size = schedule_.world_size;
    if (world_size < 1 || world_size > kMaxWorldSize) fail("the world size is out of range");
    if (!shards_fit()) fail("the number of shards does not fit the strategy");
    const int kept = schedule_.regather_shards;
    if (kept < 0 || (kept > 0 && schedule_.shards % kept != 0)) {
      fail("the ranks that keep a copy between them do not divide the shards");
    }
    if (schedule_.microbatches < 1) fail("it has no microbatch");
    if (schedule_.strategy == StrategyKind::single && world_size != 1) {
      fail("strategy single has one rank");
    }
  }

  bool shards_fit() const {
    switch (schedule_.strategy) {
      case StrategyKind::fsdp:
        return schedule_.shards == schedule_.world_size;
      case StrategyKind::hsdp:
        return schedule_.shards >= 1 && schedule_.world_size % schedule_.shards == 0;
      case StrategyKind::single:
      case StrategyKind::ddp:
        return schedule_.shards == 1;
    }
    return false;
  }

  void check_names(const std::vector<std::string>& names, const std::string& what) const {
    std::set<std::string> seen;
    for (const std::string& name : names) {
      if (name.empty() || name.find_first_of(" =,\t\r\n") != std::string::npos) {
        fail(what + " name '" + name + "' does not fit the text form");
      }
      if (!seen.insert(name).second) fail(what + " name " + name + " appears twice");
    }
  }

  void check_bucket(const Group& group, const Bucket& bucket) {
    const std::string where = "a bucket of group " + group.name;
    if (bucket.entries.empty()) fail(where + " has no parameter");
    if (bucket.numel < 1 || bucket.numel > kMaxNumel) fail(where + " has a size out of range");
    if (bucket.numel % (schedule_.shards_of(bucket) * kAlignment) != 0) {
      fail(where + " does not divide into aligned shards");
    }
    int64_t end = 0;
    for (const BucketEntry& entry : bucket.entries) {
      const bool in_range = entry.parameter >= 0 && entry.numel >= 1 && entry.offset >= end &&
                            entry.offset <= bucket.numel &&
                            entry.numel <= bucket.numel - entry.offset;
      if (!in_range) fail(where + " has a parameter that overlaps or does not fit");
      if (entry.offset % kAlignment != 0) fail(where + " has a parameter that is not aligned");
      if (!parameters_.insert(entry.parameter).second) {
        fail(fmt::format("{} has parameter {}, which has a place already", where, entry.parameter));
      }
      end = entry.offset + entry.numel;
    }
  }

  void check_slots() const {
    std::set<std::string> seen;
    for (const Slot& slot : schedule_.slots) {
      if (slot.bytes < 1) fail("slot " + slot.name() + " is empty");
      if (!seen.insert(slot.name()).second) fail("slot " + slot.name() + " appears twice");
    }
  }

  const Schedule& schedule_;
  std::set<int> parameters_;
};

}  // namespace

void fail_rule(const Schedule& schedule, int action, const std::string& rule) {
  if (action < 0) unreachable(fmt::format("schedule: {}", rule));
  unreachable(fmt::format("schedule: {}: in action {}", rule, action_to_text(schedule, action)));
}

void check_tables(const Schedule& schedule) { TableRules(schedule).check(); }

namespace {

void check_listed(const Schedule& schedule) {
  check_tables(schedule);
  check_actions(schedule);
  check_order(schedule);
  check_slots(schedule);
}

/// Checks that the repeated part begins and ends with whole microbatches, and that its rounds make
/// up the step.
void check_repetition(const Schedule& schedule) {
  const auto [begin, end, times, microbatches] = schedule.repetition;
  const auto size = static_cast<int>(schedule.actions.size());
  const auto is_load = [&](int index) {
    return schedule.actions[static_cast<size_t>(index)].kind == ActionKind::load_input;
  };
  const auto loads = std::ranges::count(schedule.actions, ActionKind::load_input, &Action::kind);
  const bool is_whole = begin > 0 && begin < end && end < size && is_load(begin) && is_load(end);
  if (!is_whole || times < 1) fail_rule(schedule, -1, "it repeats no whole microbatch");
  const auto in_round =
      std::count_if(schedule.actions.begin() + begin, schedule.actions.begin() + end,
                    [](const Action& action) { return action.kind == ActionKind::load_input; });
  const int64_t all = loads + int64_t{times - 1} * microbatches;
  if (in_round != microbatches || all != schedule.microbatches) {
    fail_rule(schedule, -1, "its rounds do not make up its microbatches");
  }
}

}  // namespace

/// Validates a step with at most three rounds. Only the first rounds can differ, because of what
/// came before them; a rule that holds in the third round holds in all later ones.
void validate(const Schedule& schedule) {
  constexpr int kTellingRounds = 3;
  if (schedule.repetition == Repetition{}) return check_listed(schedule);
  check_repetition(schedule);
  check_listed(schedule.unrolled(kTellingRounds));
}

}  // namespace shardlens::planner
