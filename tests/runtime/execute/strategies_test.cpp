// Runs every strategy of the table, and random combinations of flags, on W ranks: they train like
// one rank on the same global batch, and keep no memory from step to step.
#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <cmath>
#include <map>
#include <memory>
#include <random>

#include "models/data/dataset.h"
#include "models/families.h"
#include "planner/config/options.h"
#include "runtime/comm/none.h"
#include "tests/support/counted_memory.h"
#include "tests/support/sample.h"
#include "tests/support/strategies.h"
#include "tests/support/thread_ranks.h"

using namespace shardlens;

namespace {

constexpr int kFewSteps = 8, kSteps = 20;
constexpr int64_t kGlobalBatch = 48;  // divisible by every W x microbatches of the table

/// Small, but with enough blocks for rings to turn.
const models::ModelSpec& spec() {
  static const models::ModelSpec made = models::make_spec("small", models::VitSizes{.image_px = 28,
                                                                                    .patch_px = 7,
                                                                                    .channels = 1,
                                                                                    .layers = 4,
                                                                                    .heads = 2,
                                                                                    .width = 64,
                                                                                    .mlp_width = 96,
                                                                                    .classes = 10});
  return made;
}

const models::ImageSet& images() {
  static const models::Dataset data = models::load_dataset("fashion-mnist");
  return data.train;
}

std::vector<double> losses_of(planner::Config config, int steps) {
  const int64_t ranks = planner::world_size_of(config);
  config.batch = kGlobalBatch / (ranks * config.accumulate);
  return tests::train_losses(spec(), images(), planner::strategy_of(config), steps,
                             runtime::executor_options(config));
}

/// One rank with whole weights, one microbatch, and no flag that only changes where bytes are kept.
planner::Config reference_of(const planner::Config& config) {
  planner::Config plain;
  plain.strategy = planner::StrategyKind::single;
  plain.device = config.device;
  plain.param_dtype = config.param_dtype;
  plain.reduce_dtype = config.reduce_dtype;
  plain.output_dtype = config.output_dtype;
  plain.keep_fp32 = config.keep_fp32;
  plain.freeze = config.freeze;
  plain.optimizer = config.optimizer;
  plain.lr = config.lr;
  plain.momentum = config.momentum;
  plain.weight_decay = config.weight_decay;
  plain.clip_norm = config.clip_norm;
  plain.loss_scale = config.loss_scale;
  return plain;
}

/// Several strategies share a reference.
const std::vector<double>& reference_losses(const planner::Config& config) {
  static std::map<std::string, std::vector<double>> known;
  const planner::Config plain = reference_of(config);
  const auto [found, is_new] = known.try_emplace(planner::to_json(plain));
  if (is_new) found->second = losses_of(plain, kSteps);
  return found->second;
}

bool is_fp32(const planner::Config& config) {
  return config.param_dtype == DType::fp32 && config.reduce_dtype == DType::fp32 &&
         config.output_dtype == planner::OutputDType::automatic;
}

void require_trains_as_one_rank(const planner::Config& config, int steps) {
  const double tolerance = is_fp32(config) ? 1e-5 : 2e-2;
  const std::vector<double> losses = losses_of(config, steps);
  const std::vector<double>& reference = reference_losses(config);
  double worst = 0;
  for (int step = 0; step < steps; ++step) {
    worst = std::max(worst, std::abs(losses[step] / reference[step] - 1));
  }
  CAPTURE(worst, losses.front(), losses.back());
  CHECK(std::isfinite(losses.back()));
  CHECK(worst <= tolerance);
  CHECK(losses.back() < losses.front());
}

}  // namespace

TEST_CASE("strategies on 2 ranks begin to train as one rank does", "[numerics][strategies]") {
  tests::Sample sample;
  for (const auto& [name, config, strategy] : tests::all_strategies(2)) {
    if (!sample.has_next()) continue;
    INFO(name);
    require_trains_as_one_rank(config, kFewSteps);
  }
}

TEST_CASE("every strategy trains as one rank does", "[numerics][strategies][long]") {
  const int world_size = GENERATE(2, 4);
  for (const auto& [name, config, strategy] : tests::all_strategies(world_size)) {
    INFO(name << " on " << world_size << " ranks");
    require_trains_as_one_rank(config, kSteps);
  }
}

TEST_CASE("random combinations of flags train as one rank does", "[numerics][strategies]") {
  const uint64_t seed = std::random_device{}();
  std::mt19937_64 engine(seed);
  for (int i = 0; i < tests::sampled(16); ++i) {
    const int world_size = i % 2 == 0 ? 2 : 4;
    const auto flags = tests::random_strategy_flags(engine, world_size);
    const tests::NamedStrategy drawn = tests::named_strategy(flags, world_size);
    INFO("seed " << seed << ", draw " << i << ": " << drawn.name);
    require_trains_as_one_rank(drawn.config, kSteps);
  }
}

TEST_CASE("no strategy keeps memory from step to step", "[strategies]") {
  at::set_num_threads(1);
  constexpr int kManySteps = 60;
  tests::Sample sample;
  for (const auto& [name, config, strategy] : tests::all_strategies(4)) {
    if (!sample.has_next()) continue;
    INFO(name);
    const planner::Schedule schedule = build_schedule(spec(), strategy, planner::Pass::train);
    const auto counted = std::make_shared<tests::CountedMemory>();
    const c10::DebugInfoGuard counting(c10::DebugInfoKind::PROFILER_STATE, counted);
    const auto streams = runtime::make_inline_streams();
    const runtime::ExecutorOptions options = runtime::executor_options(config);
    runtime::RankState state(spec(), schedule, 0, at::kCPU, options.optimizer);
    std::array<runtime::NoneCommunicator, 4> none;
    runtime::Executor executor(spec(), state, *streams, {&none[0], &none[1], &none[2], &none[3]},
                               options);
    const models::Batch batch = runtime::synthetic_batch(spec(), 1, 0, at::kCPU);
    int64_t after_two = 0;
    for (int step = 0; step < kManySteps; ++step) {
      executor.run(schedule, step, [&] { return batch; });
      if (step == 1) after_two = counted->bytes;
      if (step > 1) REQUIRE(counted->bytes == after_two);
    }
  }
}
