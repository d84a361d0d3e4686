// Tries every rule by breaking a valid schedule in one place.

#include <algorithm>
#include <catch2/catch_get_random_seed.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <functional>
#include <limits>
#include <random>
#include <stdexcept>

#include "models/families.h"
#include "planner/schedule/schedule.h"
#include "tests/support/random_vit.h"
#include "tests/support/sample.h"

using namespace shardlens;
using namespace shardlens::planner;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;

namespace {

bool is_valid(const Schedule& schedule) {
  try {
    validate(schedule);
    return true;
  } catch (const std::logic_error&) {
    return false;
  }
}

/// Three blocks, so that ring slots are taken several times; head and embedding differ in size.
std::vector<Schedule> valid_schedules() {
  const models::VitSizes sizes{.image_px = 8,
                               .patch_px = 2,
                               .channels = 2,
                               .layers = 3,
                               .heads = 2,
                               .width = 16,
                               .mlp_width = 24,
                               .classes = 5};
  const models::ModelSpec spec = models::make_spec("small", sizes);
  std::vector<Schedule> schedules;
  for (const Pass pass : {Pass::train, Pass::evaluate}) {
    for (const Reshard reshard : {Reshard::automatic, Reshard::yes, Reshard::no}) {
      for (const auto communicator : {CommunicatorKind::local, CommunicatorKind::gloo}) {
        schedules.push_back(build_schedule(spec,
                                           {.kind = StrategyKind::fsdp,
                                            .world_size = 2,
                                            .reshard_after_forward = reshard,
                                            .communicator = communicator},
                                           pass));
      }
    }
    for (const DType dtype : {DType::fp32, DType::bf16}) {
      for (const StrategyKind kind : {StrategyKind::ddp, StrategyKind::single}) {
        const int world_size = kind == StrategyKind::ddp ? 2 : 1;
        schedules.push_back(build_schedule(
            spec, {.kind = kind, .world_size = world_size, .param_dtype = dtype}, pass));
      }
      schedules.push_back(build_schedule(
          spec, {.kind = StrategyKind::fsdp, .world_size = 1, .param_dtype = dtype}, pass));
    }
  }
  for (const Offload offload : {Offload::params, Offload::optimizer, Offload::all}) {
    for (const DType dtype : {DType::fp32, DType::bf16}) {
      for (const bool holds_gradients : {false, true}) {
        for (const int microbatches : {1, 2}) {
          schedules.push_back(build_schedule(spec,
                                             {.kind = StrategyKind::fsdp,
                                              .world_size = 2,
                                              .param_dtype = dtype,
                                              .offload = offload,
                                              .microbatches = microbatches,
                                              .holds_gradients = holds_gradients},
                                             Pass::train));
        }
      }
    }
  }
  return schedules;
}

/// Applies `map` to every id in every list of waits; -1 removes the wait.
void renumber(Schedule& schedule, const std::function<int(int)>& map) {
  for (Action& action : schedule.actions) {
    for (int& wait : action.waits) wait = map(wait);
    std::erase(action.waits, -1);
  }
}

Schedule without_action(Schedule schedule, int id) {
  renumber(schedule, [&](int wait) { return wait == id ? -1 : wait - (wait > id ? 1 : 0); });
  schedule.actions.erase(schedule.actions.begin() + id);
  return schedule;
}

Schedule with_action_twice(Schedule schedule, int id) {
  renumber(schedule, [&](int wait) { return wait + (wait > id ? 1 : 0); });
  schedule.actions.insert(schedule.actions.begin() + id, Action(schedule.actions[id]));
  return schedule;
}

Schedule with_swapped_actions(Schedule schedule, int a, int b) {
  renumber(schedule, [&](int wait) { return wait == a ? b : wait == b ? a : wait; });
  std::swap(schedule.actions[a], schedule.actions[b]);
  return schedule;
}

int size_of(const Schedule& schedule) { return static_cast<int>(schedule.actions.size()); }

/// Only the model knows which parameters a unit has: without one of its segments the schedule
/// is that of another model, unless the bucket or the unit has no other segment.
bool is_spare_segment(const Schedule& schedule, int id) {
  const Action& action = schedule.actions[id];
  if (action.kind != ActionKind::backward) return false;
  int of_unit = 0;
  int of_bucket = 0;
  for (const Action& other : schedule.actions) {
    if (other.kind != ActionKind::backward) continue;
    if (other.unit == action.unit) ++of_unit;
    if (other.group == action.group && other.bucket == action.bucket) ++of_bucket;
  }
  return of_unit > 1 && of_bucket > 1;
}

bool conflict(const Action& a, const Action& b) {
  const auto meets = [](const std::vector<int>& writes, const std::vector<int>& others) {
    return std::find_first_of(writes.begin(), writes.end(), others.begin(), others.end()) !=
           writes.end();
  };
  return meets(a.writes, b.writes) || meets(a.writes, b.reads) || meets(a.reads, b.writes);
}

/// Both add to the norm.
bool commute(const Action& a, const Action& b) {
  return a.kind == ActionKind::clip && b.kind == ActionKind::clip && a.group >= 0 && b.group >= 0;
}

template <typename Break>
void require_caught(const Schedule& schedule, Break breaks) {
  Schedule broken = schedule;
  breaks(broken);
  REQUIRE(broken != schedule);
  REQUIRE_FALSE(is_valid(broken));
}

}  // namespace

TEST_CASE("the builders' schedules are valid") {
  for (const Schedule& schedule : valid_schedules()) CHECK_NOTHROW(validate(schedule));
}

TEST_CASE("every single wait is needed") {
  int tried = 0;
  for (const Schedule& schedule : valid_schedules()) {
    for (int id = 0; id < size_of(schedule); ++id) {
      for (size_t i = 0; i < schedule.actions[id].waits.size(); ++i) {
        Schedule broken = schedule;
        broken.actions[id].waits.erase(broken.actions[id].waits.begin() + static_cast<int>(i));
        INFO("without wait " << i << " of " << action_to_text(schedule, id));
        REQUIRE_FALSE(is_valid(broken));
        ++tried;
      }
    }
  }
  CHECK(tried > 200);
}

TEST_CASE("every single action is needed") {
  int spare = 0;
  for (const Schedule& schedule : valid_schedules()) {
    for (int id = 0; id < size_of(schedule); ++id) {
      if (is_spare_segment(schedule, id)) {
        ++spare;
        continue;
      }
      INFO("without " << action_to_text(schedule, id));
      REQUIRE_FALSE(is_valid(without_action(schedule, id)));
    }
  }
  CHECK(spare > 0);
}

TEST_CASE("no action may come twice") {
  for (const Schedule& schedule : valid_schedules()) {
    for (int id = 0; id < size_of(schedule); ++id) {
      INFO("twice " << action_to_text(schedule, id));
      REQUIRE_FALSE(is_valid(with_action_twice(schedule, id)));
    }
  }
}

TEST_CASE("actions that share a slot cannot swap places") {
  int tried = 0;
  for (const Schedule& schedule : valid_schedules()) {
    for (int a = 0; a < size_of(schedule); ++a) {
      for (int b = a + 1; b < std::min(a + 12, size_of(schedule)); ++b) {
        if (!conflict(schedule.actions[a], schedule.actions[b])) continue;
        if (commute(schedule.actions[a], schedule.actions[b])) continue;
        INFO(action_to_text(schedule, a) << "\n" << action_to_text(schedule, b));
        REQUIRE_FALSE(is_valid(with_swapped_actions(schedule, a, b)));
        ++tried;
      }
    }
  }
  CHECK(tried > 500);
}

TEST_CASE("units keep their order") {
  for (const Schedule& schedule : valid_schedules()) {
    int previous = -1;
    for (int id = 0; id < size_of(schedule); ++id) {
      const ActionKind kind = schedule.actions[id].kind;
      const bool is_compute = kind == ActionKind::load_input || kind == ActionKind::forward ||
                              kind == ActionKind::loss || kind == ActionKind::backward;
      if (!is_compute) continue;
      if (previous >= 0) {
        REQUIRE_FALSE(is_valid(with_swapped_actions(schedule, previous, id)));
      }
      previous = id;
    }
  }
}

TEST_CASE("no access may go to another slot") {
  tests::Sample sample;
  for (const Schedule& schedule : valid_schedules()) {
    for (int id = 0; id < size_of(schedule); ++id) {
      for (auto list : {&Action::reads, &Action::writes}) {
        for (size_t i = 0; i < (schedule.actions[id].*list).size(); ++i) {
          const int slot = (schedule.actions[id].*list)[i];
          // Either receive buffer will do if it is large enough.
          if (schedule.slots[slot].kind == SlotKind::receive) continue;
          for (int other = -1; other <= static_cast<int>(schedule.slots.size()); ++other) {
            if (other == slot || !sample.has_next()) continue;
            INFO("slot " << other << " in " << action_to_text(schedule, id));
            require_caught(schedule, [&](Schedule& it) { (it.actions[id].*list)[i] = other; });
          }
        }
      }
    }
  }
}

TEST_CASE("slots are at least as large as what they hold") {
  for (const Schedule& schedule : valid_schedules()) {
    for (size_t i = 0; i < schedule.slots.size(); ++i) {
      INFO("slot " << schedule.slots[i].name());
      const bool is_used =
          std::any_of(schedule.actions.begin(), schedule.actions.end(), [&](const Action& action) {
            return std::count(action.writes.begin(), action.writes.end(), static_cast<int>(i)) > 0;
          });
      if (is_used) require_caught(schedule, [&](Schedule& it) { it.slots[i].bytes -= 1; });
      require_caught(schedule, [&](Schedule& it) { it.slots[i].bytes = 0; });
      require_caught(schedule, [&](Schedule& it) { it.slots.push_back(it.slots[i]); });
    }
  }
}

TEST_CASE("an action's own fields fit its kind") {
  for (const Schedule& schedule : valid_schedules()) {
    for (int id = 0; id < size_of(schedule); ++id) {
      INFO(action_to_text(schedule, id));
      const auto caught = [&](auto change) {
        require_caught(schedule, [&](Schedule& it) { change(it.actions[id]); });
      };
      const Action& action = schedule.actions[id];
      caught([](Action& it) { it.bytes = -it.bytes - 1; });
      if (action.kind != ActionKind::load_input) caught([](Action& it) { it.bytes += 4; });
      caught([](Action& it) { it.unit = 1000; });
      caught([](Action& it) { it.group = 1000; });
      caught([](Action& it) { it.bucket = 1000; });
      caught([&](Action& it) { it.waits.push_back(id); });
      caught([&](Action& it) { it.waits.push_back(-1); });
      caught([](Action& it) { it.unit = it.unit < 0 ? 0 : -1; });
      caught([](Action& it) { it.bucket = it.bucket < 0 ? 0 : -1; });
      for (const Stream stream : {Stream::main, Stream::gather, Stream::reduce}) {
        if (stream != action.stream) caught([&](Action& it) { it.stream = stream; });
      }
      for (const Channel channel : {Channel::none, Channel::gather, Channel::reduce}) {
        if (channel != action.channel) caught([&](Action& it) { it.channel = channel; });
      }
    }
  }
}

TEST_CASE("the group of a gathered unit cannot be another") {
  for (const Schedule& schedule : valid_schedules()) {
    if (schedule.strategy != StrategyKind::fsdp) continue;
    for (int id = 0; id < size_of(schedule); ++id) {
      if (schedule.actions[id].group < 0) continue;
      for (int group = -1; group < static_cast<int>(schedule.groups.size()); ++group) {
        if (group == schedule.actions[id].group) continue;
        INFO("group " << group << " in " << action_to_text(schedule, id));
        require_caught(schedule, [&](Schedule& it) { it.actions[id].group = group; });
      }
    }
  }
}

TEST_CASE("an action cannot have another kind") {
  tests::Sample sample;
  for (const Schedule& schedule : valid_schedules()) {
    for (int id = 0; id < size_of(schedule); ++id) {
      for (int kind = 0; kind <= static_cast<int>(ActionKind::optimizer_step); ++kind) {
        if (static_cast<ActionKind>(kind) == schedule.actions[id].kind) continue;
        if (!sample.has_next()) continue;
        INFO("kind " << kind << " in " << action_to_text(schedule, id));
        require_caught(schedule,
                       [&](Schedule& it) { it.actions[id].kind = static_cast<ActionKind>(kind); });
      }
    }
  }
}

TEST_CASE("buckets have a valid layout") {
  for (const Schedule& schedule : valid_schedules()) {
    const auto caught = [&](auto change) {
      require_caught(schedule, [&](Schedule& it) { change(it.groups[1].buckets[0]); });
    };
    caught([](Bucket& it) { it.entries[1].offset += 1; });
    caught([](Bucket& it) { it.entries[1].offset = it.entries[0].offset; });
    caught([](Bucket& it) { it.entries[1].offset = -16; });
    caught([](Bucket& it) { it.entries.back().numel = it.numel + 1; });
    caught([](Bucket& it) { it.entries.back().numel = std::numeric_limits<int64_t>::max(); });
    caught([](Bucket& it) { it.entries[0].numel = 0; });
    caught([](Bucket& it) { it.entries[0].parameter = -1; });
    caught([](Bucket& it) { it.entries[0].parameter = it.entries[1].parameter; });
    caught([](Bucket& it) { it.entries.clear(); });
    caught([](Bucket& it) { it.numel += 1; });
    caught([](Bucket& it) { it.numel = 0; });
    caught([](Bucket& it) { it.numel = std::numeric_limits<int64_t>::max() / 64 * 32; });
    require_caught(schedule, [](Schedule& it) { it.groups[1].buckets.clear(); });
    require_caught(schedule, [](Schedule& it) {
      it.groups[2].buckets[0].entries[0].parameter = it.groups[1].buckets[0].entries[0].parameter;
    });
  }
}

TEST_CASE("ranks and names fit the strategy and the text form") {
  for (const Schedule& schedule : valid_schedules()) {
    require_caught(schedule, [](Schedule& it) { it.shards += 1; });
    require_caught(schedule, [](Schedule& it) { it.world_size = 0; });
    require_caught(schedule, [](Schedule& it) { it.world_size = 1 << 30; });
    require_caught(schedule, [](Schedule& it) { it.units[0] = it.units[1]; });
    require_caught(schedule, [](Schedule& it) { it.units[0] = ""; });
    require_caught(schedule, [](Schedule& it) { it.groups[0].name = "two words"; });
    require_caught(schedule, [](Schedule& it) { it.groups[0].name = "a=b"; });
    require_caught(schedule, [](Schedule& it) { it.units.push_back("one_more"); });
  }
}

TEST_CASE("a unit has one group in forward and backward") {
  for (const Schedule& schedule : valid_schedules()) {
    const bool trains = schedule.actions.back().kind == ActionKind::optimizer_step;
    if (schedule.strategy == StrategyKind::fsdp || !trains) continue;
    for (int id = 0; id < size_of(schedule); ++id) {
      if (schedule.actions[id].kind != ActionKind::forward) continue;
      for (int group = -1; group < static_cast<int>(schedule.groups.size()); ++group) {
        if (group == schedule.actions[id].group) continue;
        require_caught(schedule, [&](Schedule& it) { it.actions[id].group = group; });
      }
    }
  }
}

TEST_CASE("gradients do not overwrite what the optimizer still reads") {
  int tried = 0;
  const Schedule schedule = valid_schedules().front();
  for (int id = 0; id + 1 < size_of(schedule); ++id) {
    if (schedule.actions[id].kind != ActionKind::optimizer_step) continue;
    if (schedule.actions[id + 1].kind != ActionKind::backward) continue;
    CHECK_THROWS_MATCHES(validate(with_swapped_actions(schedule, id, id + 1)), std::logic_error,
                         MessageMatches(ContainsSubstring("is not free")));
    ++tried;
  }
  CHECK(tried > 5);
}

TEST_CASE("a bucket gets no gradients after its reduction") {
  for (const Schedule& schedule : valid_schedules()) {
    for (int id = 0; id + 1 < size_of(schedule); ++id) {
      const ActionKind next = schedule.actions[id + 1].kind;
      const bool reduces = next == ActionKind::reduce_scatter || next == ActionKind::all_reduce;
      if (schedule.actions[id].kind != ActionKind::backward || !reduces) continue;
      Schedule broken = with_swapped_actions(schedule, id, id + 1);
      broken.actions[id].waits.clear();
      REQUIRE_FALSE(is_valid(broken));
    }
    const auto is_segment_of_two = [&](int id) {
      const Action& a = schedule.actions[id];
      const Action& b = schedule.actions[id + 1];
      return a.kind == ActionKind::backward && b.kind == ActionKind::backward &&
             a.group == b.group && a.bucket == b.bucket;
    };
    for (int id = 0; id + 2 < size_of(schedule); ++id) {
      if (schedule.world_size == 1 || !is_segment_of_two(id)) continue;
      Schedule broken = with_swapped_actions(schedule, id + 1, id + 2);
      broken.actions[id + 1].waits = {id};
      CHECK_THROWS_MATCHES(validate(broken), std::logic_error,
                           MessageMatches(ContainsSubstring("is reduced or stepped already")));
    }
  }
}

TEST_CASE("casts read the parameters from before the optimizer's step") {
  const Schedule schedule = valid_schedules().front();
  const int step = size_of(schedule) - 1;
  REQUIRE(schedule.actions[step].kind == ActionKind::optimizer_step);
  REQUIRE(schedule.groups[schedule.actions[step].group].name == "embed");
  Action cast = schedule.actions[0];
  REQUIRE(cast.group == schedule.actions[step].group);
  const auto is_reshard = [&](const Action& action) {
    return action.kind == ActionKind::reshard && action.writes == cast.writes;
  };
  const auto freed = std::find_if(schedule.actions.rbegin(), schedule.actions.rend(), is_reshard);
  cast.waits = {static_cast<int>(schedule.actions.rend() - freed) - 1};
  Action reshard = *freed;
  reshard.group = cast.group;

  // Places of cast and reshard among the last actions: one more use of the group, which nothing
  // reads, before, around and after its optimizer step.
  const auto with_use = [&](int cast_at, int reshard_at) {
    Schedule changed = schedule;
    changed.actions.insert(changed.actions.begin() + cast_at, cast);
    reshard.waits = {cast_at};
    changed.actions.insert(changed.actions.begin() + reshard_at, reshard);
    return changed;
  };
  CHECK_NOTHROW(validate(with_use(step, step + 1)));
  CHECK_THROWS_MATCHES(validate(with_use(step, step + 2)), std::logic_error,
                       MessageMatches(ContainsSubstring("which gathers its group")));
  CHECK_THROWS_MATCHES(validate(with_use(step + 1, step + 2)), std::logic_error,
                       MessageMatches(ContainsSubstring("next step's parameters")));
}

TEST_CASE("the error names the rule and the action's line") {
  Schedule schedule = valid_schedules().front();
  const auto gather =
      std::find_if(schedule.actions.begin(), schedule.actions.end(), [](const Action& action) {
        return action.kind == ActionKind::cast_shard && !action.waits.empty();
      });
  gather->waits.clear();
  const int id = static_cast<int>(gather - schedule.actions.begin());
  CHECK_THROWS_MATCHES(validate(schedule), std::logic_error,
                       MessageMatches(ContainsSubstring("nothing orders it after action") &&
                                      ContainsSubstring(action_to_text(schedule, id))));
}

TEST_CASE("random damage never does more than throw") {
  int caught = 0;
  for (uint64_t seed = 0; seed < 4000; ++seed) {
    CAPTURE(seed);
    std::mt19937_64 engine(seed);
    static const std::vector<Schedule> schedules = valid_schedules();
    Schedule schedule = schedules[seed % schedules.size()];
    for (int i = 0; i < 3; ++i) {
      Action& action = schedule.actions[tests::random_between(engine, 0, size_of(schedule) - 1)];
      const int value = static_cast<int>(tests::random_between(engine, -2, 60));
      switch (tests::random_between(engine, 0, 6)) {
        case 0:
          action.unit = value;
          break;
        case 1:
          action.group = value;
          break;
        case 2:
          action.bucket = value;
          break;
        case 3:
          action.waits.push_back(value);
          break;
        case 4:
          action.reads.push_back(value);
          break;
        case 5:
          action.writes = {value};
          break;
        default:
          std::swap(action, schedule.actions.front());
          break;
      }
    }
    if (!is_valid(schedule)) ++caught;
  }
  CHECK(caught > 3000);
}
