#include "planner/planner.h"
#include "models/families.h"

#include <algorithm>
#include <array>
#include <catch2/catch_approx.hpp>
#include <catch2/catch_get_random_seed.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "planner/config/options.h"
#include "planner/plan_search.h"
#include "planner/plan_solve.h"
#include "planner/prepared_run.h"
#include "planner/simulate/allocator/replay.h"
#include "tests/support/random_vit.h"
#include "tests/support/strategies.h"

using namespace shardlens;
using namespace shardlens::planner;
using Catch::Approx;
using profiler::Category;

namespace {

constexpr int64_t kPage = int64_t{2} << 20;

Config config_of(std::vector<std::string> flags) {
  const bool has_device = std::ranges::find(flags, "--device") != flags.end();
  if (!has_device) flags.insert(flags.end(), {"--device", "null:h200"});
  return parse_arguments(flags).config;
}

Plan plan(const std::vector<std::string>& flags) { return make_plan(config_of(flags), {}); }

int64_t bytes(const Plan& plan, Category category) {
  return plan.at_peak.category_bytes[static_cast<size_t>(category)];
}

template <class Values>
auto one_of(std::mt19937_64& engine, const Values& values) {
  return values[static_cast<size_t>(
      tests::random_between(engine, 0, static_cast<int64_t>(std::size(values)) - 1))];
}

Config random_config(std::mt19937_64& engine) {
  const auto number = [&](int64_t low, int64_t high) {
    return tests::random_between(engine, low, high);
  };
  Config config;
  config.device = device_named("null:h200");
  config.model = one_of(engine, std::array{"vit-tutorial", "vit-b16", "simple-model"});
  config.batch = number(1, 64);
  config.strategy =
      one_of(engine, std::array{StrategyKind::ddp, StrategyKind::fsdp, StrategyKind::fsdp});
  config.world = int64_t{1} << number(1, 6);
  config.solo_rank = 0;
  config.param_dtype = one_of(engine, std::array{DType::fp32, DType::bf16});
  config.reduce_dtype = one_of(engine, std::array{DType::fp32, DType::bf16});
  config.reshard_after_forward = {
      .mode = one_of(engine, std::array{Reshard::automatic, Reshard::yes, Reshard::no})};
  config.recompute = {.every = one_of(engine, std::array{0, 0, 1, 2})};
  config.offload =
      one_of(engine, std::array{Offload::none, Offload::none, Offload::optimizer, Offload::all});
  config.accumulate = number(1, 2);
  return config;
}

Verdict verdict_at(Config config, int64_t capacity_bytes) {
  config.capacity = std::to_string(capacity_bytes);
  return make_plan(config, {}).verdict;
}

}  // namespace

TEST_CASE("a plan's state is masters and moments, divided by the ranks", "[planner][plan]") {
  // 1,006,090 parameters; buckets start and end at multiples of 16 elements a rank.
  constexpr int64_t kParameters = 1006090;
  for (const int64_t world : {1, 2, 8, 64}) {
    const Plan made = plan({"--world", std::to_string(world), "--device", "cpu"});
    const int64_t masters = bytes(made, Category::parameter_shard);
    CHECK(masters >= 4 * kParameters / world);
    CHECK(masters <= 4 * (kParameters / world + 16 * 160));
    CHECK(bytes(made, Category::optimizer_state) == 2 * masters + 4);
    CHECK(made.ranks.size() == 1);
    CHECK(made.ranks[0].count == world);
  }
}

TEST_CASE("a block keeps ten times its input, and attention's sums", "[planner][plan]") {
  // Korthikanti et al., "Reducing Activation Recomputation", without dropout: (8 + 2r) T D e, and
  // mean and deviation of two layer norms; r = 1, and 17 tokens an image.
  const auto activations = [](int64_t layers) {
    const models::VitSizes sizes = {.image_px = 28,
                                    .patch_px = 7,
                                    .channels = 1,
                                    .layers = layers,
                                    .heads = 2,
                                    .width = 128,
                                    .mlp_width = 128,
                                    .classes = 10};
    const Config config = config_of({"--batch", "64", "--device", "cpu"});
    return bytes(make_plan(models::make_spec("v", sizes), config, target_of(config, ""), {}),
                 Category::activation);
  };
  const double tokens = 64 * 17;
  const double block = 10 * tokens * 128 * 4 + 16 * tokens + 4 * 64 * 2 * 17;
  CHECK(static_cast<double>(activations(12) - activations(8)) == Approx(4 * block).epsilon(0.01));
}

TEST_CASE("memory grows with batch and layers, state shrinks with ranks", "[planner][plan]") {
  int64_t before = 0;
  for (const char* batch : {"1", "2", "8", "64", "512"}) {
    const int64_t peak = plan({"--batch", batch}).peak.allocated_bytes;
    CHECK(peak >= before);
    before = peak;
  }
  int64_t state = INT64_MAX;
  for (const char* world : {"1", "2", "4", "32"}) {
    const Plan made = plan({"--world", world, "--model", "vit-b16"});
    CHECK(made.static_bytes <= state);
    state = made.static_bytes;
  }
}

TEST_CASE("categories add up to the peak", "[planner][plan]") {
  for (const char* device : {"cpu", "null:h100"}) {
    const Plan made = plan({"--model", "vit-b16", "--world", "4", "--device", device});
    const auto& categories = made.at_peak.category_bytes;
    CHECK(std::accumulate(categories.begin(), categories.end(), int64_t{0}) ==
          made.peak.allocated_bytes);
    CHECK(made.step_peak.allocated_bytes <= made.peak.allocated_bytes);
    CHECK(made.peak.allocated_bytes <= made.peak.reserved_bytes);
    CHECK(made.at_peak.moment.action_text.starts_with("BACKWARD"));
    CHECK(std::ranges::is_sorted(made.at_peak.largest, std::greater(), &PlannedTensor::bytes));
  }
}

TEST_CASE("every strategy can be planned, on a GPU and on the CPU", "[planner][plan]") {
  for (const char* device : {"null:h200", "cpu"}) {
    for (tests::NamedStrategy& strategy : tests::all_strategies(8)) {
      CAPTURE(device, strategy.name);
      strategy.config.device = device_named(device);
      const Plan made = make_plan(strategy.config, {});
      const auto& categories = made.at_peak.category_bytes;
      CHECK(std::accumulate(categories.begin(), categories.end(), int64_t{0}) ==
            made.peak.allocated_bytes);
      CHECK(made.peak.allocated_bytes <= made.least_any_bytes);
      CHECK(made.least_any_bytes <= made.least_fast_bytes);
      CHECK(made.static_bytes < made.peak.allocated_bytes);
      CHECK(made.step_seconds > 0);
      CHECK(made.ranks[0].count == world_size_of(strategy.config));
    }
  }
}

TEST_CASE("the verdict changes where the plan says", "[planner][plan]") {
  const auto seed = Catch::getSeed();
  CAPTURE(seed);
  std::mt19937_64 engine(seed);
  int slow_zones = 0;
  for (int i = 0; i < 40; ++i) {
    const Config config = random_config(engine);
    CAPTURE(i, to_json(config));
    Plan made;
    try {
      made = make_plan(config, {});
    } catch (const std::invalid_argument&) {
      continue;  // flags that contradict each other
    }
    const int64_t fast = made.least_fast_bytes, any = made.least_any_bytes;
    CHECK(verdict_at(config, fast) == Verdict::fits);
    CHECK(verdict_at(config, fast + kPage) == Verdict::fits);
    CHECK(verdict_at(config, fast - kPage) != Verdict::fits);
    CHECK(verdict_at(config, any) != Verdict::does_not_fit);
    CHECK(verdict_at(config, any - kPage) == Verdict::does_not_fit);
    CHECK(verdict_at(config, any + kPage) != Verdict::does_not_fit);
    slow_zones += any < fast;
  }
  CHECK(slow_zones > 0);  // else no retries were tested
}

TEST_CASE("a replay with a capacity is the simulation with it", "[planner][plan]") {
  const auto seed = Catch::getSeed();
  CAPTURE(seed);
  std::mt19937_64 engine(seed);
  for (int i = 0; i < 10; ++i) {
    const Config config = random_config(engine);
    CAPTURE(i, to_json(config));
    const PreparedRun run = prepare(spec_of(config), config, target_of(config, ""), {});
    const RunResult whole = simulate(run, {});
    const Replay replay(whole.simulation->timeline().events());
    for (const double share : {1.0, 0.97, 0.9, 0.5}) {
      const auto capacity = static_cast<int64_t>(
          share * static_cast<double>(whole.simulation->peak().reserved_bytes));
      AllocatorSettings settings;
      settings.capacity_bytes = capacity;
      const ReplayResult replayed = replay.run(settings);
      const RunResult simulated = simulate(run, {}, capacity);
      CHECK(replayed.failed_event.has_value() == simulated.is_full);
      CHECK(replayed.retries == simulated.retries);
      if (simulated.is_full) continue;
      CHECK(replayed.peak_reserved_bytes == simulated.simulation->peak().reserved_bytes);
    }
  }
}

TEST_CASE("a plan that does not fit says where, and what would help", "[planner][plan]") {
  const Plan made = plan({"--model", "vit-l16", "--batch", "64", "--capacity", "12GiB"});
  CHECK(made.verdict == Verdict::does_not_fit);
  REQUIRE(made.failure);
  CHECK(made.failure->wanted.bytes > 0);
  CHECK(!made.failure->moment.action_text.empty());
  CHECK(*made.headroom_bytes == (int64_t{12} << 30) - made.least_any_bytes);
  REQUIRE(!made.what_ifs.empty());
  const auto recompute = std::ranges::find(made.what_ifs, "--recompute full", &WhatIf::change);
  REQUIRE(recompute != made.what_ifs.end());
  const Plan changed =
      plan({"--model", "vit-l16", "--batch", "64", "--capacity", "12GiB", "--recompute", "full"});
  CHECK(recompute->device_bytes == changed.least_fast_bytes - made.least_fast_bytes);
  CHECK(changed.verdict == Verdict::fits);
}

TEST_CASE("a GPU has less room than its null device", "[planner][plan]") {
  Config config = config_of({"--model", "vit-b16", "--world", "8"});
  const Plan on_null = make_plan(config, {});
  CHECK(on_null.outside.total_bytes() == 0);
  config.device = {};
  PlanOptions options;
  options.gpu = "h200";
  const Plan on_gpu = make_plan(config, options);
  CHECK(on_gpu.peak == on_null.peak);
  CHECK(on_gpu.device_bytes - on_null.device_bytes == on_gpu.outside.total_bytes());
  CHECK(on_gpu.outside.nccl_bytes > 0);
  options.outside.calibration = Calibration{.context_bytes = 1 << 20,
                                            .modules_bytes = 2 << 20,
                                            .nccl_bytes_a_communicator = 3 << 20,
                                            .source = "x.slp"};
  const Plan calibrated = make_plan(config, options);
  CHECK(calibrated.outside.total_bytes() == (1 + 2 + 2 * 3) << 20);
}

TEST_CASE("expandable segments take only pages that are used", "[planner][plan]") {
  PlanOptions options;
  const Config config = config_of({"--model", "vit-b16", "--batch", "32"});
  const Plan plain = make_plan(config, options);
  options.allocator.expandable_segments = true;
  const Plan expandable = make_plan(config, options);
  CHECK(expandable.peak.reserved_bytes >= expandable.peak.allocated_bytes);
  CHECK(expandable.peak.reserved_bytes <= plain.peak.reserved_bytes);
}

TEST_CASE("a solved size fits, and one more does not", "[planner][plan]") {
  Config config = config_of({"--model", "vit-b16", "--capacity", "6GiB"});
  const Plan solved = solve("batch", config, {});
  REQUIRE(solved.solution);
  CHECK(solved.verdict == Verdict::fits);
  config.batch = std::stoll(solved.solution->value) + 1;
  CHECK(make_plan(config, {}).verdict != Verdict::fits);

  config = config_of({"--model", "vit-l16", "--batch", "1", "--capacity", "2GiB"});
  const Plan ranks = solve("world", config, {});
  const int64_t world = std::stoll(ranks.solution->value);
  CHECK(world > 1);
  CHECK(ranks.verdict == Verdict::fits);
  config.world = world - 1;
  config.solo_rank = 0;
  CHECK(make_plan(config, {}).verdict != Verdict::fits);

  config = config_of({"--model", "vit-b16", "--batch", "8", "--capacity", "4GiB"});
  const Plan layers = solve("layers", config, {});
  CHECK(layers.verdict == Verdict::fits);
  CHECK(std::stoll(layers.solution->value) > 12);

  config = config_of({"--model", "vit-h14", "--batch", "64"});
  config.device = {};
  const Plan gpu = solve("gpu", config, {});
  CHECK(gpu.verdict == Verdict::fits);
  for (const Gpu& other : gpus()) {
    if (other.memory_bytes >= find_gpu(gpu.solution->value).memory_bytes) continue;
    PlanOptions options;
    options.gpu = other.name;
    CHECK(make_plan(config, options).verdict != Verdict::fits);
  }
}

TEST_CASE("if nothing fits, the nearest is planned", "[planner][plan]") {
  const Plan none = solve("batch", config_of({"--model", "vit-l16", "--capacity", "1GiB"}), {});
  CHECK(none.solution->value.empty());
  CHECK(none.config.batch == 1);
  CHECK(none.verdict == Verdict::does_not_fit);
  CHECK_THROWS_AS(solve("width", config_of({}), {}), std::invalid_argument);
  CHECK_THROWS_AS(solve("world", config_of({"--strategy", "single"}), {}), std::invalid_argument);
}

TEST_CASE("a search shows configurations that no other beats", "[planner][plan]") {
  const Config config = config_of({"--world", "4", "--batch", "64", "--data", "synthetic"});
  const std::vector<std::string> given = {"offload", "param-dtype"};
  const SearchResult result = search_strategies(config, given, {}, 60 << 20);
  REQUIRE(result.front.size() > 1);
  CHECK(result.candidates.size() > 50);
  for (size_t i = 1; i < result.front.size(); ++i) {
    CHECK(result.front_candidate(i).step_seconds >= result.front_candidate(i - 1).step_seconds);
    CHECK(result.front_candidate(i).device_bytes < result.front_candidate(i - 1).device_bytes);
  }
  for (size_t i = 0; i < result.candidates.size(); ++i) {
    const Candidate& candidate = result.candidates[i];
    CAPTURE(candidate.flags, candidate.rejected);
    CHECK(candidate.config.offload == Offload::none);
    CHECK(candidate.config.param_dtype == DType::fp32);
    CHECK(candidate.config.batch * candidate.config.accumulate == 64);
    const bool is_on_front = std::ranges::find(result.front, i) != result.front.end();
    CHECK(candidate.rejected.has_value() != is_on_front);
    const std::string why = candidate.rejected.value_or("");
    if (why.starts_with("--")) continue;  // cannot be run
    Config one = candidate.config;
    one.device = device_named("null:h200");
    const int64_t need = make_plan(one, {}).least_fast_bytes;
    if (is_on_front) {
      CHECK(need == candidate.device_bytes);
    } else if (why.starts_with("no faster")) {
      CHECK(std::ranges::any_of(result.front, [&](size_t better) {
        return result.candidates[better].step_seconds <= candidate.step_seconds &&
               result.candidates[better].device_bytes <= need;
      }));
    } else {
      CHECK(need > result.budget_bytes);
    }
  }
}

TEST_CASE("sizes beyond 64 bits are refused", "[planner][plan]") {
  using Catch::Matchers::MessageMatches;
  const auto too_large = MessageMatches(Catch::Matchers::ContainsSubstring("2^62"));
  CHECK_THROWS_MATCHES(plan({"--batch", "4611686018427387904"}), std::invalid_argument, too_large);
  CHECK_THROWS_MATCHES(plan({"--model", "llama-8b", "--batch", "1000000000"}),
                       std::invalid_argument, too_large);
  CHECK(plan({"--model", "vit-b16", "--batch", "100000"}).verdict == Verdict::does_not_fit);
}
