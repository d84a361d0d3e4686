// Compares every family with PyTorch: start weights, loss and gradients as
// tests/reference/family_steps.py recorded them, and sharded training with one rank.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>
#include <nlohmann/json.hpp>

#include "models/model.h"
#include "runtime/comm/none.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/thread_ranks.h"

using namespace shardlens;
using namespace shardlens::tests;
using Catch::Matchers::WithinRel;
using planner::Pass;
using planner::Reshard;
using planner::StrategyKind;

namespace {

constexpr uint64_t kSeed = 5;  // the recording's

const nlohmann::json& recorded(const std::string& name) {
  static const nlohmann::json all = nlohmann::json::parse(
      read_file(std::string(SHARDLENS_SOURCE_DIR) + "/tests/fixtures/family_steps.json"));
  return all.at(name);
}

models::ModelSpec spec_of(const std::string& name) {
  const TemporaryFolder folder;
  write_file(folder.file("model.json"), recorded(name).at("sizes").dump());
  return models::find_spec(folder.file("model.json"));
}

/// The recording's `strengthen`.
at::Tensor strengthened(const at::Tensor& value) {
  const at::Tensor waves = at::arange(value.numel(), at::kFloat).sin().view(value.sizes());
  return value * (value.dim() > 1 ? 8.0 : 1.0) + 0.1 * waves;
}

at::Tensor ids(int64_t batch, int64_t seq, int64_t factor, int64_t classes) {
  return at::arange(batch * seq, at::kLong).mul(factor).remainder(classes).view({batch, seq});
}

models::Batch recorded_batch(const models::ModelSpec& spec) {
  const models::SampleSpec& sample = spec.sample;
  const int64_t width = sample.shape.front();
  if (sample.input == models::InputKind::features) {
    return {.input = at::arange(6 * width, at::kFloat).sin().view({6, width}),
            .targets = at::arange(6, at::kLong).remainder(sample.classes)};
  }
  models::Batch batch{.input = ids(3, width, 37, sample.classes), .targets = {}};
  if (spec.target_bytes(1) > 0) batch.targets = ids(3, width, 53, sample.classes);
  return batch;
}

/// One training step of fsdp or single on one rank; gradients as the optimizer sees them.
struct Step {
  double loss = 0;
  std::vector<at::Tensor> gradients;  // by parameter, flat
};

Step step_of(const models::ModelSpec& spec, const planner::Strategy& strategy) {
  const planner::Schedule schedule = build_schedule(spec, strategy, Pass::train);
  runtime::RankState state(spec, schedule, 0, at::kCPU);
  models::draw_parameters(spec, kSeed, [&](int parameter, const at::Tensor& value) {
    state.set_parameter(parameter, strengthened(value));
  });
  const auto streams = runtime::make_inline_streams();
  runtime::NoneCommunicator none;
  runtime::Executor executor(spec, state, *streams, {&none, &none}, {});
  Step step;
  step.gradients.resize(spec.parameters.size());
  executor.observe([&](int id) {
    const planner::Action& action = schedule.actions[id];
    if (action.kind != planner::ActionKind::optimizer_step) return;
    const at::Tensor& slot = state.slot(action.reads.front());
    for (const auto& entry : schedule.groups[action.group].buckets[action.bucket].entries) {
      step.gradients[entry.parameter] = slot.narrow(0, entry.offset, entry.numel).clone();
    }
  });
  executor.run(schedule, 0, [&] { return recorded_batch(spec); });
  step.loss = executor.loss().item<double>();
  return step;
}

/// Norm, and dot products with cos(0), cos(1), ...
std::pair<double, double> projections(const at::Tensor& gradient) {
  const at::Tensor values = gradient.to(at::kDouble).reshape({-1});
  const at::Tensor waves = at::arange(values.numel(), at::kDouble).cos();
  return {values.norm().item<double>(), values.dot(waves).item<double>()};
}

}  // namespace

TEST_CASE("start weights are those that PyTorch draws", "[numerics]") {
  const std::string name = GENERATE("llama-tied", "llama", "transformer", "mlp");
  const models::ModelSpec spec = spec_of(name);
  const nlohmann::json& start = recorded(name).at("start");
  CHECK(start.size() == spec.parameters.size());
  models::draw_parameters(spec, kSeed, [&](int parameter, const at::Tensor& value) {
    const models::ParameterSpec& described = spec.parameters[parameter];
    INFO(name << " " << described.name);
    REQUIRE(value.sizes().vec() == described.shape);
    const at::Tensor values = value.to(at::kDouble).reshape({-1});
    const std::vector<double> sums = {values.sum().item<double>(),
                                      values.pow(2).sum().item<double>(), values[0].item<double>()};
    const auto expected = start.at(described.name).get<std::vector<double>>();
    for (size_t i = 0; i < sums.size(); ++i) {
      CHECK(std::abs(sums[i] - expected[i]) <= 1e-9 * std::max(1.0, expected[1]));
    }
  });
}

TEST_CASE("loss and gradients of every family are PyTorch's", "[numerics]") {
  at::set_num_threads(1);
  const std::string name = GENERATE("llama-tied", "llama", "transformer", "mlp");
  const auto kind = GENERATE(StrategyKind::single, StrategyKind::fsdp);
  const auto reshard = GENERATE(Reshard::automatic, Reshard::yes);
  const models::ModelSpec spec = spec_of(name);
  const Step step = step_of(spec, strategy_of(kind, 1, 3, reshard));
  INFO(name);
  CHECK_THAT(step.loss, WithinRel(recorded(name).at("loss").get<double>(), 1e-5));
  const nlohmann::json& gradients = recorded(name).at("gradients");
  for (size_t i = 0; i < spec.parameters.size(); ++i) {
    INFO(spec.parameters[i].name);
    const auto [norm, dot] = projections(step.gradients[i]);
    const auto expected = gradients.at(spec.parameters[i].name).get<std::vector<double>>();
    CHECK(std::abs(norm - expected[0]) <= 1e-5 * expected[0]);
    CHECK(std::abs(dot - expected[1]) <= 1e-5 * expected[0]);
  }
}

TEST_CASE("the loss of tokens and its gradient are ATen's cross entropy", "[numerics]") {
  const models::ModelSpec spec = spec_of("llama");
  const auto dtype = GENERATE(at::kFloat, at::kBFloat16);
  at::manual_seed(3);
  const at::Tensor logits = (at::randn({6, 101}) * 20).to(dtype);
  const at::Tensor targets = at::randint(101, {2, 3}, at::kLong);
  const at::Tensor leaf = logits.detach().to(at::kFloat).requires_grad_(true);
  const at::Tensor expected = models::loss(spec, leaf, targets);
  expected.backward();
  const auto [loss, gradient] = models::loss_and_gradient(spec, logits, targets);
  CHECK_THAT(loss.item<double>(), WithinRel(expected.item<double>(), 1e-6));
  CHECK(gradient.scalar_type() == dtype);
  const double most = (gradient.to(at::kFloat) - leaf.grad()).abs().max().item<double>();
  CHECK(most <= (dtype == at::kFloat ? 1e-7 : 1e-3));
}

TEST_CASE("a tied head trains on two ranks as on one", "[numerics]") {
  const models::ModelSpec spec = spec_of("llama-tied");
  const auto losses = [&](StrategyKind kind, int world_size) {
    const planner::Strategy strategy = strategy_of(kind, world_size, 8 / world_size);
    const planner::Schedule schedule = build_schedule(spec, strategy, Pass::train);
    const models::Batch whole = runtime::synthetic_batch(spec, 8, 1, at::kCPU);
    std::vector<double> found(8);
    run_ranks(schedule, [&](int rank, runtime::Channels channels) {
      runtime::RankState state(spec, schedule, schedule.shards > 1 ? rank : 0, at::kCPU);
      const auto streams = runtime::make_inline_streams();
      draw_into(state, spec, kSeed);
      runtime::Executor executor(spec, state, *streams, channels, {});
      const int64_t share = strategy.batch;
      const models::Batch batch{.input = whole.input.narrow(0, rank * share, share),
                                .targets = whole.targets.narrow(0, rank * share, share)};
      for (size_t step = 0; step < found.size(); ++step) {
        executor.run(schedule, static_cast<int64_t>(step), [&] { return batch; });
        double loss = executor.loss().item<double>();
        channels.reduce->sum({.step = 0, .kind = "SUM", .group = "loss"}, {&loss, 1});
        if (rank == 0) found[step] = loss / world_size;
      }
    });
    return found;
  };
  const auto one = losses(StrategyKind::single, 1);
  CHECK(one.back() < 0.9 * one.front());
  for (const auto kind : {StrategyKind::fsdp, StrategyKind::ddp}) {
    const auto two = losses(kind, 2);
    CAPTURE(one, two);
    for (size_t step = 0; step < one.size(); ++step)
      CHECK_THAT(two[step], WithinRel(one[step], 1e-5));
  }
}
