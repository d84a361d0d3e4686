// Properties of every schedule, over random models and strategies. Happens-before is computed here
// by walking the graph of streams and waits, not by the clocks that the planner uses.

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <map>
#include <random>
#include <set>

#include "models/families.h"
#include "planner/schedule/schedule.h"
#include "tests/support/random_vit.h"

using namespace shardlens;
using namespace shardlens::planner;

namespace {

struct Sample {
  models::ModelSpec spec;
  Strategy strategy;
  Pass pass{};
  Schedule schedule;
};

using Draw = Strategy (*)(std::mt19937_64&);

Sample sample_of(uint64_t seed, Draw draw) {
  std::mt19937_64 engine(seed);
  Sample sample;
  sample.spec = tests::random_vit(engine);
  sample.strategy = draw(engine);
  sample.pass = tests::random_between(engine, 0, 3) == 0 ? Pass::evaluate : Pass::train;
  sample.schedule = build_schedule(sample.spec, sample.strategy, sample.pass);
  return sample;
}

template <typename Check>
void for_random_schedules(uint64_t count, Check check, Draw draw = tests::random_strategy) {
  for (uint64_t seed = 0; seed < count; ++seed) {
    const Sample sample = sample_of(seed, draw);
    CAPTURE(seed, sample.strategy.kind, sample.strategy.param_dtype, sample.strategy.world_size,
            sample.strategy.reshard_after_forward, sample.pass);
    check(sample);
  }
}

int64_t count(const Schedule& schedule, ActionKind kind) {
  return std::count_if(schedule.actions.begin(), schedule.actions.end(),
                       [&](const Action& action) { return action.kind == kind; });
}

/// Returns, for each action, the actions that must end before it starts.
using Ancestors = std::vector<std::vector<bool>>;

Ancestors ancestors_of(const Schedule& schedule) {
  const size_t size = schedule.actions.size();
  Ancestors ancestors(size, std::vector<bool>(size));
  std::map<Stream, int> last;
  for (size_t id = 0; id < size; ++id) {
    const Action& action = schedule.actions[id];
    std::vector<int> parents = action.waits;
    if (last.contains(action.stream)) parents.push_back(last[action.stream]);
    for (const int parent : parents) {
      ancestors[id][parent] = true;
      for (size_t other = 0; other < id; ++other) {
        if (ancestors[parent][other]) ancestors[id][other] = true;
      }
    }
    last[action.stream] = static_cast<int>(id);
  }
  return ancestors;
}

bool contains(const std::vector<int>& list, int value) {
  return std::count(list.begin(), list.end(), value) > 0;
}

bool conflict(const Action& a, const Action& b) {
  const auto meets = [](const std::vector<int>& writes, const Action& other) {
    return std::any_of(writes.begin(), writes.end(), [&](int slot) {
      return contains(other.reads, slot) || contains(other.writes, slot);
    });
  };
  return meets(a.writes, b) || meets(b.writes, a);
}

/// Over strategies with every option there is.
template <typename Check>
void for_rich_schedules(uint64_t count, Check check) {
  for_random_schedules(count, check, tests::random_rich_strategy);
}

}  // namespace

TEST_CASE("conflicting accesses to a slot are ordered by streams and waits") {
  for_rich_schedules(150, [](const Sample& sample) {
    const std::vector<Action>& actions = sample.schedule.actions;
    const Ancestors ancestors = ancestors_of(sample.schedule);
    bool ordered = true;
    for (size_t later = 0; later < actions.size(); ++later) {
      for (size_t earlier = 0; earlier < later; ++earlier) {
        if (conflict(actions[earlier], actions[later])) ordered &= ancestors[later][earlier];
      }
    }
    REQUIRE(ordered);
  });
}

TEST_CASE("no wait is implied by a stream or by another wait") {
  for_rich_schedules(150, [](const Sample& sample) {
    const std::vector<Action>& actions = sample.schedule.actions;
    const Ancestors ancestors = ancestors_of(sample.schedule);
    std::map<Stream, int> last;
    for (size_t id = 0; id < actions.size(); ++id) {
      for (const int wait : actions[id].waits) {
        REQUIRE(actions[wait].stream != actions[id].stream);
        std::vector<int> others = actions[id].waits;
        std::erase(others, wait);
        if (last.contains(actions[id].stream)) others.push_back(last[actions[id].stream]);
        for (const int other : others) REQUIRE_FALSE(ancestors[other][wait]);
      }
      last[actions[id].stream] = static_cast<int>(id);
    }
  });
}

TEST_CASE("the text form gives the same schedule back") {
  for_rich_schedules(300, [](const Sample& sample) {
    const std::string text = to_text(sample.schedule);
    const Schedule parsed = parse_schedule(text);
    REQUIRE(parsed == sample.schedule);
    REQUIRE(to_text(parsed) == text);
  });
}

TEST_CASE("the number of casts and gathers follows from layers and reshard mode") {
  for_random_schedules(300, [](const Sample& sample) {
    const int64_t layers = sample.spec.as<models::VitSizes>().layers;
    const int64_t groups = layers + 2;
    int64_t expected = 0;
    const bool is_fsdp = sample.strategy.kind == StrategyKind::fsdp;
    if (is_fsdp || sample.strategy.param_dtype == DType::bf16) {
      expected = groups;
      // The embedding's backward reads no parameters.
      const bool trains = sample.pass == Pass::train;
      if (trains && sample.strategy.reshard_after_forward == Reshard::yes) expected += layers + 1;
      if (trains && sample.strategy.reshard_after_forward == Reshard::automatic) expected += layers;
    }
    REQUIRE(count(sample.schedule, ActionKind::cast_shard) == expected);
    const bool gathers = is_fsdp && sample.strategy.world_size > 1;
    REQUIRE(count(sample.schedule, ActionKind::all_gather) == (gathers ? expected : 0));
    REQUIRE(count(sample.schedule, ActionKind::reshard) == expected);
  });
}

TEST_CASE("gathered bytes are a shard of each group's padded parameters") {
  for_random_schedules(200, [](const Sample& sample) {
    for (const Action& action : sample.schedule.actions) {
      if (action.kind != ActionKind::all_gather) continue;
      int64_t numel = 0;
      for (const Bucket& bucket : sample.schedule.groups[action.group].buckets) {
        numel += bucket.numel;
      }
      REQUIRE(action.bytes * sample.strategy.world_size ==
              numel * bytes_of(sample.strategy.param_dtype));
    }
  });
}

TEST_CASE("besides kept groups and those above a block, two groups at most are unsharded") {
  for_random_schedules(300, [](const Sample& sample) {
    const Schedule& schedule = sample.schedule;
    if (!schedule.has_unsharded_slots()) return;
    if (sample.strategy.reshard_after_forward == Reshard::no) return;
    const int head = static_cast<int>(schedule.groups.size()) - 1;
    std::set<int> resident;
    for (const Action& action : schedule.actions) {
      if (action.kind == ActionKind::reshard) resident.erase(action.group);
      if (action.kind != ActionKind::cast_shard) continue;
      const bool is_kept =
          action.group == head && sample.strategy.reshard_after_forward == Reshard::automatic;
      const bool is_large = schedule.groups[action.group].numel() > schedule.groups[1].numel();
      if (!is_kept && !is_large) resident.insert(action.group);
      REQUIRE(resident.size() <= 2);
    }
  });
}

TEST_CASE("segments give every unit's gradients to its buckets, before their reduction") {
  for_random_schedules(300, [](const Sample& sample) {
    const Schedule& schedule = sample.schedule;
    if (sample.pass == Pass::evaluate) return;
    using Segment = std::pair<int, std::pair<int, int>>;  // unit, (group, bucket)
    std::set<Segment> expected;
    std::map<int, std::pair<int, int>> bucket_of;  // by parameter
    for (int group = 0; group < static_cast<int>(schedule.groups.size()); ++group) {
      const std::vector<Bucket>& buckets = schedule.groups[group].buckets;
      for (int bucket = 0; bucket < static_cast<int>(buckets.size()); ++bucket) {
        for (const BucketEntry& entry : buckets[bucket].entries) {
          bucket_of[entry.parameter] = {group, bucket};
        }
      }
    }
    for (int unit = 0; unit < static_cast<int>(sample.spec.units.size()); ++unit) {
      for (const int parameter : sample.spec.units[unit].parameters) {
        expected.insert({unit, bucket_of.at(parameter)});
      }
    }
    std::set<Segment> found;
    std::set<std::pair<int, int>> reduced;
    for (const Action& action : schedule.actions) {
      const std::pair<int, int> bucket = {action.group, action.bucket};
      if (action.kind == ActionKind::backward) {
        REQUIRE_FALSE(reduced.contains(bucket));
        REQUIRE(found.insert({action.unit, bucket}).second);
      }
      if (action.kind == ActionKind::reduce_scatter || action.kind == ActionKind::all_reduce) {
        REQUIRE(reduced.insert(bucket).second);
      }
    }
    REQUIRE(found == expected);
  });
}

TEST_CASE("slots for gradients are bounded by a third of a block or one parameter") {
  for_random_schedules(300, [](const Sample& sample) {
    int64_t largest_parameter = 0;
    for (const models::ParameterSpec& parameter : sample.spec.parameters) {
      largest_parameter = std::max(largest_parameter, parameter.numel());
    }
    const int64_t block = sample.schedule.groups[1].numel();
    const int64_t padding = int64_t{16} * sample.schedule.shards;
    const int64_t bound = (std::max(block / 3, largest_parameter) + padding) * 4;
    for (const Slot& slot : sample.schedule.slots) {
      if (slot.kind == SlotKind::unsharded) continue;
      const bool is_shard = slot.kind == SlotKind::gradient_shard;
      REQUIRE(slot.bytes * (is_shard ? sample.schedule.shards : 1) <= bound);
    }
  });
}

TEST_CASE("every strategy that can be drawn gives a valid schedule") {
  std::map<ActionKind, int64_t> seen;
  for_rich_schedules(2000, [&](const Sample& sample) {
    for (const Action& action : sample.schedule.actions) ++seen[action.kind];
  });
  for (int kind = 0; kind <= static_cast<int>(ActionKind::optimizer_step); ++kind) {
    CAPTURE(to_string(static_cast<ActionKind>(kind)));
    CHECK(seen[static_cast<ActionKind>(kind)] > 100);
  }
}
