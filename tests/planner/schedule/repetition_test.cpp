// Steps of many microbatches: a schedule that lists a round once equals the one that lists all, and
// a simulation that leaves out settled rounds takes the same memory as one that has all.
#include "planner/schedule/repetition.h"
#include "models/families.h"

#include <algorithm>
#include <catch2/catch_approx.hpp>
#include <catch2/catch_get_random_seed.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <limits>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "planner/config/arguments.h"
#include "planner/prepared_run.h"
#include "planner/schedule/builders.h"
#include "planner/simulate/allocator/replay.h"
#include "planner/simulate/settled_rounds.h"
#include "profiler/recording/events.h"
#include "tests/support/random_vit.h"
#include "tests/support/sample.h"

using namespace shardlens;
using namespace shardlens::planner;

namespace {

constexpr int kAllRounds = std::numeric_limits<int>::max();

/// Chooses like build_schedule, with no round left out.
Schedule build_whole(const models::ModelSpec& spec, const Strategy& strategy) {
  const bool has_slots = is_sharded(strategy.kind) || strategy.param_dtype != DType::fp32 ||
                         strategy.offload != Offload::none;
  return has_slots ? build_fsdp(spec, strategy, Pass::train)
                   : build_ddp(spec, strategy, Pass::train);
}

std::vector<std::string> lines_of(const Schedule& schedule) {
  std::vector<std::string> lines;
  for (int id = 0; id < schedule.size(); ++id) lines.push_back(action_to_text(schedule, id));
  return lines;
}

PreparedRun prepared(const std::vector<std::string>& flags) {
  const Config config = parse_arguments(flags).config;
  return prepare(spec_of(config), config, target_of(config, ""), {});
}

/// All that a simulation says, except where in the timeline it says it.
struct Outcome {
  SimulatedPeak peak, step_peak;
  int64_t pinned_bytes = 0, host_bytes = 0, retries = 0, least_bytes = 0;
  bool is_full = false;

  bool operator==(const Outcome&) const = default;
};

Outcome outcome_of(const PreparedRun& run, int64_t capacity_bytes = kUnlimitedBytes) {
  const RunResult result = simulate(run, {}, capacity_bytes);
  const Simulation& simulation = *result.simulation;
  Outcome outcome{.peak = simulation.peak(),
                  .step_peak = simulation.step_peak(),
                  .pinned_bytes = simulation.pinned_peak_bytes(),
                  .host_bytes = simulation.host_peak_bytes(),
                  .retries = result.retries,
                  .is_full = result.is_full};
  if (run.target.gpu == nullptr || result.is_full) return outcome;
  outcome.least_bytes =
      Replay(simulation.timeline().events())
          .least_capacity_bytes({}, outcome.peak.allocated_bytes, outcome.peak.reserved_bytes);
  return outcome;
}

/// Compares all microbatches with the ones that stand for them: on a device that is large enough,
/// on one that has to stall, and on one that is too small.
void check_left_out(PreparedRun run) {
  const Outcome some = outcome_of(run);
  run.every_microbatch = true;
  const Outcome all = outcome_of(run);
  CHECK(some == all);
  if (run.target.gpu == nullptr) return;
  for (const int64_t capacity : {all.least_bytes, all.least_bytes - (int64_t{2} << 20)}) {
    run.every_microbatch = true;
    const Outcome tight = outcome_of(run, capacity);
    run.every_microbatch = false;
    CHECK(outcome_of(run, capacity) == tight);
  }
}

}  // namespace

TEST_CASE("a repeated schedule equals the one that lists all rounds", "[planner][repetition]") {
  std::mt19937_64 engine(Catch::getSeed());
  INFO("seed " << Catch::getSeed());
  int repeated = 0;
  const int64_t cases = tests::sampled(300);
  for (int64_t i = 0; i < cases; ++i) {
    const models::ModelSpec spec = tests::random_vit(engine);
    Strategy strategy = tests::random_rich_strategy(engine);
    strategy.microbatches = static_cast<int>(tests::random_between(engine, 1, 40));
    CAPTURE(i, strategy.kind, strategy.microbatches, strategy.sync, strategy.offload,
            strategy.forward_prefetch, strategy.backward_prefetch,
            spec.as<models::VitSizes>().layers);
    const Schedule schedule = build_schedule(spec, strategy, Pass::train);
    const Schedule whole = build_whole(spec, strategy);
    REQUIRE(schedule.size() == whole.size());
    REQUIRE(schedule.unrolled(kAllRounds) == whole);
    REQUIRE(lines_of(schedule) == lines_of(whole));
    REQUIRE(parse_schedule(to_text(schedule)) == schedule);
    CHECK(schedule.unit_plans().size() == whole.unit_plans().size());
    CHECK(schedule.channels() == whole.channels());
    CHECK(schedule.sums_apart() == whole.sums_apart());
    const profiler::ActionLines lines(to_text(schedule));
    const profiler::ActionLines all_lines(to_text(whole));
    for (int id = 0; id < whole.size(); ++id) {
      const std::string line = lines.line(id), same = all_lines.line(id);
      REQUIRE(line.substr(0, line.find(" waits=")) == same.substr(0, same.find(" waits=")));
    }
    CHECK(lines.line(whole.size()).empty());
    repeated += schedule.repetition.times > 1;

    const Schedule evaluation = build_schedule(spec, strategy, Pass::evaluate);
    const bool has_slots = whole.has_unsharded_slots();
    CHECK(evaluation == (has_slots ? build_fsdp(spec, strategy, Pass::evaluate)
                                   : build_ddp(spec, strategy, Pass::evaluate)));
  }
  CHECK(repeated > cases / 3);
}

TEST_CASE("a schedule does not grow with the microbatches", "[planner][repetition]") {
  std::mt19937_64 engine(Catch::getSeed());
  INFO("seed " << Catch::getSeed());
  for (int i = 0; i < 100; ++i) {
    const models::ModelSpec spec = tests::random_vit(engine);
    Strategy strategy = tests::random_rich_strategy(engine);
    strategy.microbatches = 10000;
    CAPTURE(i, strategy.kind, strategy.sync, strategy.offload, strategy.forward_prefetch,
            strategy.backward_prefetch, spec.as<models::VitSizes>().layers);
    const Schedule schedule = build_schedule(spec, strategy, Pass::train);
    CHECK(schedule.repetition.times > 1000);
    CHECK(schedule.size() > 10000);
    strategy.microbatches = 40;
    CHECK(schedule.actions.size() <=
          static_cast<size_t>(build_schedule(spec, strategy, Pass::train).size()));
  }
}

TEST_CASE("a step of more actions than ids is refused", "[planner][repetition]") {
  Config config;
  config.model = "vit-22b";
  config.world = 512;
  config.device = device_named("null:h200");
  config.accumulate = 1 << 20;
  config.solo_rank = 0;
  const Strategy strategy = strategy_of(config);
  const auto build = [&](int microbatches) {
    Strategy some = strategy;
    some.microbatches = microbatches;
    return build_fsdp(spec_of(config), some, Pass::train);
  };
  const FewMicrobatches few = few_that_stand_for(strategy.microbatches, build);
  REQUIRE(few.round);
  const int most = std::numeric_limits<int>::max();
  CHECK_THROWS_MATCHES(repeated(build(few.count), few, most), std::invalid_argument,
                       Catch::Matchers::Message("--accumulate 2147483647: a step would have more "
                                                "than 2^31 actions; give fewer"));
}

TEST_CASE("a broken repetition is found", "[planner][repetition]") {
  const Config config = parse_arguments({"--model", "vit-tutorial", "--world", "4", "--device",
                                         "null:h200", "--accumulate", "50", "--solo-rank", "0"})
                            .config;
  const Schedule schedule = build_schedule(spec_of(config), strategy_of(config), Pass::train);
  REQUIRE(schedule.repetition.times > 1);
  const auto check_refused = [&](const auto& change) {
    Schedule broken = schedule;
    change(broken.repetition);
    CHECK_THROWS_AS(validate(broken), std::logic_error);
  };
  check_refused([](Repetition& it) { ++it.begin; });
  check_refused([](Repetition& it) { ++it.end; });
  check_refused([](Repetition& it) { ++it.times; });
  check_refused([](Repetition& it) { it.times = 0; });
  check_refused([](Repetition& it) { ++it.microbatches; });
  check_refused([](Repetition& it) { it.end = it.begin; });
  for (int index = schedule.repetition.begin; index < schedule.repetition.end; ++index) {
    for (size_t i = 0; i < schedule.actions[static_cast<size_t>(index)].waits.size(); ++i) {
      Schedule broken = schedule;
      std::vector<int>& waits = broken.actions[static_cast<size_t>(index)].waits;
      waits.erase(waits.begin() + static_cast<std::ptrdiff_t>(i));
      CHECK_THROWS_AS(validate(broken), std::logic_error);
    }
  }
}

TEST_CASE("rounds are left out once a state has recurred twice", "[planner][repetition]") {
  SettledRounds rounds;
  const auto arrive = [&](int64_t layout, int64_t total, int64_t left, int64_t retries) {
    return rounds.arrive({{layout}, {total}}, left, retries);
  };
  CHECK(arrive(1, 0, 100, 0) == 0);
  CHECK(arrive(2, 0, 99, 0) == 0);
  CHECK(arrive(3, 0, 98, 1) == 0);
  CHECK(arrive(2, 0, 97, 2) == 0);
  CHECK(arrive(3, 0, 96, 4) == 0);
  CHECK(arrive(2, 0, 95, 5) == 94);  // whole periods of two, three retries each
  CHECK(rounds.retries_left_out() == 141);
  rounds.forget();

  // No state returns, but the same amount is held and reserved for eight rounds.
  CHECK(arrive(100, 7, 1000, 5) == 0);
  for (int round = 0; round < 8; ++round) {
    CHECK(arrive(round, 8, 900 - round, 5 + round / 4) == 0);
  }
  CHECK(arrive(8, 8, 800, 7) == 800);
  CHECK(rounds.retries_left_out() == 141 + 200);
}

TEST_CASE("microbatches that are left out change nothing", "[planner][repetition]") {
  using Flags = std::vector<std::string>;
  const std::vector<Flags> strategies = {
      {},
      {"--sync", "last"},
      {"--offload", "all"},
      {"--offload", "params", "--param-dtype", "bf16"},
      {"--offload", "optimizer", "--clip-norm", "1"},
      {"--strategy", "ddp", "--clip-norm", "1"},
      {"--strategy", "hsdp", "--replicas", "2", "--param-dtype", "bf16", "--reduce-dtype", "bf16"},
      {"--reshard-after-forward", "false", "--recompute", "full"},
      {"--reshard-after-forward", "2", "--forward-prefetch", "3"}};
  tests::Sample sample;
  for (const Flags& strategy : strategies) {
    for (const char* device : {"cpu", "null:h200"}) {
      for (const int accumulate : {1, 2, 3, 4, 5, 6, 7, 8, 21}) {
        Flags flags = {"--model",  "vit-tutorial", "--batch",      "8",
                       "--device", device,         "--accumulate", std::to_string(accumulate),
                       "--data",   "synthetic"};
        const bool is_cpu = device == std::string("cpu");
        flags.insert(flags.end(), {is_cpu ? "--workers" : "--world", "4"});
        if (!is_cpu) flags.insert(flags.end(), {"--solo-rank", "0"});
        flags.insert(flags.end(), strategy.begin(), strategy.end());
        std::string line;
        for (const std::string& flag : flags) line += flag + " ";
        INFO(line);
        if (sample.has_next()) check_left_out(prepared(flags));
      }
    }
  }
}

/// Each rank has 15,000 samples: microbatch 235 of 64 has 24 of them, in the midst of a step.
TEST_CASE("microbatches of fewer samples are not left out", "[planner][repetition]") {
  for (const char* device : {"cpu", "null:h200"}) {
    const bool is_cpu = device == std::string("cpu");
    std::vector<std::string> flags = {"--model",  "vit-tutorial", "--batch",      "64",
                                      "--device", device,         "--accumulate", "100",
                                      "--data",   "fashion-mnist"};
    flags.insert(flags.end(), {is_cpu ? "--workers" : "--world", "4"});
    if (!is_cpu) flags.insert(flags.end(), {"--solo-rank", "0"});
    check_left_out(prepared(flags));
  }
}

TEST_CASE("ten thousand microbatches are planned as a few", "[planner][repetition]") {
  const auto simulated = [&](const char* accumulate) {
    const PreparedRun run =
        prepared({"--model", "vit-tutorial", "--device", "null:h200", "--world", "8", "--solo-rank",
                  "0", "--accumulate", accumulate, "--data", "synthetic"});
    return simulate(run, {}).simulation;
  };
  const auto few = simulated("40"), many = simulated("10000");
  CHECK(many->timeline().events().size() == few->timeline().events().size());
  CHECK(many->peak() == few->peak());
}

TEST_CASE("equal rounds take the time that they would one by one", "[planner][repetition]") {
  for (const char* model : {"vit-tutorial", "vit-l16", "llama-1b"}) {
    for (const char* offload : {"none", "all"}) {
      for (const char* sync : {"every", "last"}) {
        PreparedRun run = prepared({"--model", model, "--device", "null:h200", "--world", "8",
                                    "--solo-rank", "0", "--accumulate", "200", "--data",
                                    "synthetic", "--offload", offload, "--sync", sync});
        CAPTURE(model, offload, sync);
        const StepCost cost = cost_of(run);
        const int actions = run.train.size();
        REQUIRE(cost.alike.end > cost.alike.begin);
        run.train = run.train.unrolled(kAllRounds);
        const StepCost whole = cost_of(run);
        REQUIRE(actions == run.train.size());
        const auto near = [](double value) { return Catch::Approx(value).epsilon(1e-6); };
        CHECK(cost.seconds == near(whole.seconds));
        CHECK(cost.compute_seconds == near(whole.compute_seconds));
        int wrong = 0;
        for (int id = 0; id < actions; ++id) {
          wrong += cost.begin_of(id) != near(whole.begin_of(id));
          wrong += cost.end_of(id) != near(whole.end_of(id));
        }
        CHECK(wrong == 0);
      }
    }
  }
}
