// Checks that sharded training computes the same as plain training.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>
#include <cmath>
#include <utility>
#include <vector>

#include "models/model.h"
#include "runtime/comm/none.h"
#include "tests/support/thread_ranks.h"

using namespace shardlens;
using namespace shardlens::tests;
using Catch::Matchers::WithinRel;
using planner::Pass;
using planner::Reshard;
using planner::StrategyKind;

namespace {

const models::ImageSet& fashion_mnist() {
  static const models::Dataset data = models::load_dataset("fashion-mnist");
  return data.train;
}

/// The same units on ordinary leaves, one loss.backward(), one Adam, which the executor must equal.
class PlainTraining {
 public:
  PlainTraining(const models::ModelSpec& spec, uint64_t seed)
      : spec_(spec), units_(models::build_units(spec)), step_(at::zeros({})) {
    weights_.resize(spec.parameters.size());
    models::draw_parameters(spec, seed, [&](int parameter, const at::Tensor& value) {
      weights_[parameter] = value.clone().requires_grad_(true);
    });
    for (const at::Tensor& weight : weights_) {
      exp_avg_.push_back(at::zeros_like(weight));
      exp_avg_sq_.push_back(at::zeros_like(weight));
    }
  }

  at::Tensor forward_and_backward(const models::Batch& batch) {
    at::Tensor value = batch.input;
    for (size_t unit = 0; unit < units_.size(); ++unit) {
      std::vector<at::Tensor> used;
      for (const int parameter : spec_.units[unit].parameters) used.push_back(weights_[parameter]);
      value = units_[unit](value, used);
    }
    const at::Tensor loss = models::loss(spec_, value, batch.targets);
    loss.backward();
    return loss.detach();
  }

  const at::Tensor& gradient(int parameter) const { return weights_[parameter].grad(); }

  void step() {
    const at::NoGradGuard no_grad;
    step_.add_(1);
    for (size_t i = 0; i < weights_.size(); ++i) {
      at::_fused_adam_({weights_[i]}, {weights_[i].grad()}, {exp_avg_[i]}, {exp_avg_sq_[i]}, {},
                       {step_}, 1e-3, 0.9, 0.999, 0.0, 1e-8, false, false);
      weights_[i].mutable_grad().reset();
    }
  }

 private:
  const models::ModelSpec& spec_;
  std::vector<models::Forward> units_;
  std::vector<at::Tensor> weights_, exp_avg_, exp_avg_sq_;
  at::Tensor step_;
};

/// Hands every parameter's gradient to `take` while its bucket waits for its optimizer step; with
/// shards it only sees this rank's part, so this is for a world of one.
template <class Take>
void observe_gradients(runtime::Executor& executor, const planner::Schedule& schedule,
                       runtime::RankState& state, Take take) {
  executor.observe([&schedule, &state, take](int id) {
    const planner::Action& action = schedule.actions[id];
    if (action.kind != planner::ActionKind::optimizer_step) return;
    const at::Tensor& slot = state.slot(action.reads.front());
    for (const auto& entry : schedule.groups[action.group].buckets[action.bucket].entries) {
      take(entry.parameter, slot.narrow(0, entry.offset, entry.numel));
    }
  });
}

void require_bit_equal_to_plain(const planner::Strategy& strategy) {
  const models::ModelSpec spec = models::find_spec("vit-tutorial");
  const planner::Schedule schedule = build_schedule(spec, strategy, Pass::train);
  runtime::RankState state(spec, schedule, 0, at::kCPU);
  const auto streams = runtime::make_inline_streams();
  draw_into(state, spec, 7);
  runtime::NoneCommunicator gather, reduce;
  runtime::Executor executor(spec, state, *streams, {&gather, &reduce}, {});
  PlainTraining plain(spec, 7);
  const runtime::Batches batches(fashion_mnist());
  size_t compared = 0;
  observe_gradients(executor, schedule, state, [&](int parameter, const at::Tensor& gradient) {
    INFO(spec.parameters[parameter].name);
    CHECK(at::equal(gradient, plain.gradient(parameter).reshape({-1})));
    ++compared;
  });
  for (int step = 0; step < 3; ++step) {
    const models::Batch batch = batches.at(at::arange(step * 32, (step + 1) * 32, at::kLong));
    const at::Tensor plain_loss = plain.forward_and_backward(batch);
    executor.run(schedule, step, [&] { return batch; });
    CHECK(at::equal(executor.loss(), plain_loss));
    plain.step();
  }
  CHECK(compared == 3 * spec.parameters.size());
}

void require_equal_losses(const std::vector<double>& one, const std::vector<double>& other,
                          double tolerance) {
  REQUIRE(one.size() == other.size());
  double worst = 0;
  for (size_t step = 0; step < one.size(); ++step) {
    INFO("step " << step);
    worst = std::max(worst, std::abs(one[step] / other[step] - 1));
    CHECK_THAT(one[step], WithinRel(other[step], tolerance));
  }
  CAPTURE(worst);
  CHECK(worst <= tolerance);
}

}  // namespace

TEST_CASE("fsdp on one rank is bit-equal to one loss.backward()", "[numerics]") {
  at::set_num_threads(1);
  const auto reshard = GENERATE(Reshard::automatic, Reshard::yes, Reshard::no);
  require_bit_equal_to_plain(strategy_of(StrategyKind::fsdp, 1, 32, reshard));
}

TEST_CASE("repeated rounds compute the same as rounds listed one by one", "[numerics]") {
  at::set_num_threads(1);
  const auto sync = GENERATE(planner::Sync::every, planner::Sync::last);
  planner::Strategy strategy = strategy_of(StrategyKind::fsdp, 1, 4, Reshard::yes);
  strategy.microbatches = 12;
  strategy.sync = sync;
  const models::ModelSpec spec = models::find_spec("vit-tutorial");
  const planner::Schedule repeated = build_schedule(spec, strategy, Pass::train);
  REQUIRE(repeated.repetition.times > 1);
  const runtime::Batches batches(fashion_mnist());
  const auto train_by = [&](const planner::Schedule& schedule) {
    runtime::RankState state(spec, schedule, 0, at::kCPU);
    const auto streams = runtime::make_inline_streams();
    draw_into(state, spec, 7);
    runtime::NoneCommunicator gather, reduce;
    runtime::Executor executor(spec, state, *streams, {&gather, &reduce}, {});
    std::vector<int> ids;
    executor.observe([&](int id) { ids.push_back(id); });
    std::vector<at::Tensor> losses;
    int64_t first = 0;
    for (int step = 0; step < 3; ++step) {
      executor.run(schedule, step, [&] {
        const int64_t begin = std::exchange(first, first + 4);
        return batches.at(at::arange(begin, begin + 4, at::kLong));
      });
      losses.push_back(executor.loss().clone());
    }
    return std::pair(losses, ids);
  };
  const auto [losses, ids] = train_by(repeated);
  const auto [same_losses, same_ids] = train_by(repeated.unrolled(repeated.repetition.times));
  CHECK(ids == same_ids);
  for (size_t step = 0; step < losses.size(); ++step) {
    CHECK(at::equal(losses[step], same_losses[step]));
  }
}

TEST_CASE("single is bit-equal to one loss.backward()", "[numerics]") {
  at::set_num_threads(1);
  require_bit_equal_to_plain(strategy_of(StrategyKind::single, 1, 32));
}

namespace {

using LinearCode = at::Tensor (*)(const at::Tensor& input, const at::Tensor& weight,
                                  const at::Tensor& bias);

at::Tensor aten_linear(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias) {
  return at::linear(input, weight, bias);
}

template <models::InputUse kUse>
at::Tensor own_linear(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias) {
  return models::linear(input, weight, bias, kUse);
}

/// Output, and the gradients of input, weight and bias. The linear's input is a sum, which no node
/// keeps, so that it may be overwritten.
std::vector<at::Tensor> run_linear(LinearCode linear, const at::Tensor& output_gradient) {
  at::manual_seed(3);
  const at::Tensor input = at::randn({5, 17, 24}).requires_grad_(true);
  const at::Tensor weight = at::randn({40, 24}).requires_grad_(true);
  const at::Tensor bias = at::randn({40}).requires_grad_(true);
  const at::Tensor output = linear(input + 1, weight, bias);
  output.backward(output_gradient);
  return {output.detach(), input.grad(), weight.grad(), bias.grad()};
}

}  // namespace

TEST_CASE("the linear nodes equal ATen's", "[numerics]") {
  at::manual_seed(4);
  const bool is_of_mean = GENERATE(false, true);
  const at::Tensor gradient =
      is_of_mean ? at::randn({}).expand({5, 17, 40}) : at::randn({5, 17, 40});
  const std::vector<at::Tensor> aten = run_linear(aten_linear, gradient);
  const bool spends = GENERATE(false, true);
  const std::vector<at::Tensor> ours = run_linear(
      spends ? own_linear<models::InputUse::spent> : own_linear<models::InputUse::kept>, gradient);
  INFO((is_of_mean ? "from a mean" : "written out") << (spends ? ", spending" : ""));
  for (size_t i = 0; i < ours.size(); ++i) {
    INFO("output, input, weight, bias: " << i);
    const double scale = aten[i].abs().max().item<double>();
    CHECK((ours[i] - aten[i]).abs().max().item<double>() <= 1e-6 * scale);
  }
}

TEST_CASE("W ranks equal one rank on the same global batch", "[numerics]") {
  const models::ModelSpec spec = models::find_spec("vit-tutorial");
  constexpr int kSteps = 20;
  const std::vector<double> one =
      train_losses(spec, fashion_mnist(), strategy_of(StrategyKind::fsdp, 1, 128), kSteps);
  for (const int world_size : {2, 4}) {
    INFO("fsdp, world size " << world_size);
    const auto strategy = strategy_of(StrategyKind::fsdp, world_size, 128 / world_size);
    require_equal_losses(train_losses(spec, fashion_mnist(), strategy, kSteps), one, 1e-5);
  }
  INFO("ddp, world size 2");
  const auto ddp = strategy_of(StrategyKind::ddp, 2, 64);
  require_equal_losses(train_losses(spec, fashion_mnist(), ddp, kSteps), one, 1e-5);
}

TEST_CASE("bf16 parameters train as fp32 ones do, whole and sharded", "[numerics]") {
  const models::ModelSpec spec = models::find_spec("vit-tutorial");
  constexpr int kSteps = 10;
  const auto losses = [&](StrategyKind kind, int world_size, DType dtype) {
    planner::Strategy strategy = strategy_of(kind, world_size, 32 / world_size);
    strategy.param_dtype = dtype;
    return train_losses(spec, fashion_mnist(), strategy, kSteps);
  };
  const auto fp32 = losses(StrategyKind::single, 1, DType::fp32);
  const auto bf16 = losses(StrategyKind::single, 1, DType::bf16);
  require_equal_losses(bf16, fp32, 5e-2);
  CHECK(bf16 != fp32);
  require_equal_losses(losses(StrategyKind::fsdp, 2, DType::bf16), bf16, 2e-2);
  require_equal_losses(losses(StrategyKind::ddp, 2, DType::bf16), bf16, 2e-2);
}

TEST_CASE("reshard after forward changes no bit", "[numerics]") {
  const models::ModelSpec spec = models::find_spec("vit-tutorial");
  const auto losses = [&](Reshard reshard) {
    return train_losses(spec, fashion_mnist(), strategy_of(StrategyKind::fsdp, 2, 16, reshard), 4);
  };
  CHECK(losses(Reshard::yes) == losses(Reshard::no));
  CHECK(losses(Reshard::yes) == losses(Reshard::automatic));
}
