// Tests a program's own model: sharded it learns what plain autograd learns, and its mistakes are
// reported in one line.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "models/model.h"
#include "runtime/comm/none.h"
#include "tests/support/process.h"
#include "tests/support/thread_ranks.h"

using namespace shardlens;
using namespace shardlens::tests;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;
using planner::Pass;
using planner::StrategyKind;
using Weights = std::span<const at::Tensor>;

namespace {

constexpr int64_t kVocab = 40, kWidth = 16, kSeq = 6, kGlobalBatch = 8;
constexpr int kSteps = 10;
constexpr uint64_t kSeed = 11;
const models::SampleSpec kTokens = {models::InputKind::tokens, {kSeq}, {kSeq}, kVocab};

at::Tensor embed(const at::Tensor& ids, Weights w) { return at::embedding(w[0], ids); }
at::Tensor block(const at::Tensor& x, Weights w) {
  return x + at::linear(at::layer_norm(x, {kWidth}, w[0], w[1]), w[2], w[3]).tanh();
}
at::Tensor flatten(const at::Tensor& x, Weights) { return x.reshape({-1, kWidth}); }
at::Tensor tied_head(const at::Tensor& x, Weights w) { return at::linear(x, w[0]); }

/// Label smoothing, which no loss of the spec has.
at::Tensor smoothed_loss(const at::Tensor& output, const at::Tensor& targets) {
  return at::cross_entropy_loss(output.to(at::kFloat), targets.reshape({-1}), {},
                                at::Reduction::Mean, -100, 0.1);
}

/// Two blocks between an embedding and a head of one matrix; a unit without parameters.
models::OwnModel small_model() {
  std::vector<models::OwnUnit> units;
  const models::OwnParameter table{"embeddings.weight", {kVocab, kWidth}};
  units.push_back({"embed", embed, {table}});
  for (const std::string name : {"first", "second"}) {
    units.push_back({name,
                     block,
                     {{name + ".norm.weight", {kWidth}},
                      {name + ".norm.bias", {kWidth}},
                      {name + ".linear.weight", {kWidth, kWidth}},
                      {name + ".linear.bias", {kWidth}}},
                     "blocks"});
  }
  units.push_back({"flatten", flatten, {}});
  units.push_back({"head", tied_head, {table}});
  models::OwnModel model = models::make_own_model("small", kTokens, std::move(units));
  model.loss = smoothed_loss;
  return model;
}

models::Batch whole_batch(int step) {
  const auto seed = static_cast<uint64_t>(step);
  const models::OwnModel model = small_model();
  return runtime::synthetic_batch(model.spec, kGlobalBatch, seed, at::kCPU);
}

void draw_into(runtime::RankState& state, const models::OwnModel& model) {
  models::draw_parameters(model, kSeed, [&](int parameter, const at::Tensor& value) {
    state.set_parameter(parameter, value);
  });
}

/// Leaves, one loss.backward() and PyTorch's fused Adam.
std::vector<double> plain_losses(const models::OwnModel& model) {
  std::vector<at::Tensor> weights(model.spec.parameters.size()), first, second;
  models::draw_parameters(model, kSeed, [&](int parameter, const at::Tensor& value) {
    weights[parameter] = value.clone().requires_grad_(true);
  });
  for (const at::Tensor& weight : weights) {
    first.push_back(at::zeros_like(weight));
    second.push_back(at::zeros_like(weight));
  }
  const at::Tensor count = at::zeros({});
  std::vector<double> losses;
  for (int step = 0; step < kSteps; ++step) {
    const models::Batch batch = whole_batch(step);
    at::Tensor value = batch.input;
    for (size_t unit = 0; unit < model.units.size(); ++unit) {
      std::vector<at::Tensor> used;
      for (const int index : model.spec.units[unit].parameters) used.push_back(weights[index]);
      value = model.units[unit](value, used);
    }
    const at::Tensor loss = model.loss(value, batch.targets);
    loss.backward();
    losses.push_back(loss.item<double>());
    const at::NoGradGuard no_grad;
    count.add_(1);
    for (size_t i = 0; i < weights.size(); ++i) {
      at::_fused_adam_({weights[i]}, {weights[i].grad()}, {first[i]}, {second[i]}, {}, {count},
                       1e-2, 0.9, 0.999, 0.0, 1e-8, false, false);
      weights[i].mutable_grad().reset();
    }
  }
  return losses;
}

runtime::ExecutorOptions options_of(const models::OwnModel& model) {
  runtime::ExecutorOptions options;
  options.optimizer.lr = 1e-2;
  options.units = model.units;
  options.loss = model.loss;
  return options;
}

std::vector<double> sharded_losses(const models::OwnModel& model,
                                   const planner::Strategy& strategy) {
  const planner::Schedule schedule = build_schedule(model.spec, strategy, Pass::train);
  std::vector<double> losses(kSteps);
  run_ranks(schedule, [&](int rank, runtime::Channels channels) {
    const runtime::ExecutorOptions options = options_of(model);
    runtime::RankState state(model.spec, schedule, rank % schedule.shards, at::kCPU,
                             options.optimizer);
    const auto streams = runtime::make_inline_streams();
    draw_into(state, model);
    runtime::Executor executor(model.spec, state, *streams, channels, options);
    for (int step = 0; step < kSteps; ++step) {
      const models::Batch whole = whole_batch(step);
      int64_t first = rank * strategy.batch * strategy.microbatches;
      executor.run(schedule, step, [&] {
        const int64_t begin = std::exchange(first, first + strategy.batch);
        return models::Batch{.input = whole.input.narrow(0, begin, strategy.batch),
                             .targets = whole.targets.narrow(0, begin, strategy.batch)};
      });
      double loss = executor.loss().item<double>();
      world_sum(channels, {.step = step, .kind = "SUM", .group = "loss"}, {&loss, 1});
      if (rank == 0) losses[step] = loss / strategy.world_size;
    }
  });
  return losses;
}

std::string refusal(std::vector<models::OwnUnit> units) {
  try {
    models::make_own_model("mine", kTokens, std::move(units));
  } catch (const std::invalid_argument& error) {
    CHECK(std::string(error.what()).find('\n') == std::string::npos);
    return error.what();
  }
  return "accepted";
}

/// One step of a model whose units say which dtype their inputs had.
std::map<std::string, at::ScalarType> input_dtypes(DType dtype, bool cast_inputs) {
  std::map<std::string, at::ScalarType> seen;
  const auto saying = [&seen](const std::string& name, bool widens) {
    return [&seen, name, widens](const at::Tensor& x, Weights w) {
      seen[name] = x.scalar_type();
      const at::Tensor y = at::linear(x.to(w[0].scalar_type()), w[0]);
      return widens ? y.to(at::kFloat) : y;
    };
  };
  models::OwnModel model =
      models::make_own_model("dtypes", {models::InputKind::features, {4}, {}, 3},
                             {{"stem", saying("stem", true), {{"stem.weight", {5, 4}}}},
                              {"middle", saying("middle", false), {{"middle.weight", {5, 5}}}},
                              {"head", saying("head", false), {{"head.weight", {3, 5}}}}});
  planner::Strategy strategy = strategy_of(StrategyKind::fsdp, 1, 2);
  strategy.param_dtype = dtype;
  const planner::Schedule schedule = build_schedule(model.spec, strategy, Pass::train);
  runtime::ExecutorOptions options = options_of(model);
  options.cast_inputs = cast_inputs;
  runtime::RankState state(model.spec, schedule, 0, at::kCPU);
  draw_into(state, model);
  const auto streams = runtime::make_inline_streams();
  runtime::NoneCommunicator none;
  runtime::Executor executor(model.spec, state, *streams, {&none, &none}, options);
  executor.run(schedule, 0, [&] { return runtime::synthetic_batch(model.spec, 2, 0, at::kCPU); });
  return seen;
}

}  // namespace

TEST_CASE("an own model on one rank is bit-equal to plain autograd", "[numerics][own]") {
  at::set_num_threads(1);
  const models::OwnModel model = small_model();
  const std::vector<double> plain = plain_losses(model);
  CHECK(sharded_losses(model, strategy_of(StrategyKind::fsdp, 1, kGlobalBatch)) == plain);
  CHECK(sharded_losses(model, strategy_of(StrategyKind::single, 1, kGlobalBatch)) == plain);
}

TEST_CASE("an own model learns the same however it is sharded", "[numerics][own]") {
  const models::OwnModel model = small_model();
  const std::vector<double> plain = plain_losses(model);
  std::vector<planner::Strategy> strategies = {strategy_of(StrategyKind::fsdp, 2, 4),
                                               strategy_of(StrategyKind::fsdp, 4, 2),
                                               strategy_of(StrategyKind::ddp, 2, 4)};
  strategies.push_back(strategy_of(StrategyKind::fsdp, 2, 2));
  strategies.back().microbatches = 2;
  strategies.push_back(strategy_of(StrategyKind::fsdp, 2, 4));
  strategies.back().recompute_every = 1;
  for (const planner::Strategy& strategy : strategies) {
    const std::vector<double> losses = sharded_losses(model, strategy);
    CAPTURE(to_string(strategy.kind), strategy.world_size, strategy.microbatches, plain, losses);
    for (int step = 0; step < kSteps; ++step) {
      CHECK(std::abs(losses[step] / plain[step] - 1) < 1e-5);
    }
  }
}

TEST_CASE("inputs are cast as PyTorch's cast_forward_inputs casts them", "[own]") {
  using Dtypes = std::map<std::string, at::ScalarType>;
  const auto bf16 = at::kBFloat16, fp32 = at::kFloat;
  CHECK(input_dtypes(DType::bf16, true) ==
        Dtypes{{"stem", bf16}, {"middle", bf16}, {"head", bf16}});
  // Inputs as they come: the batch is fp32, and so is the stem's output.
  CHECK(input_dtypes(DType::bf16, false) ==
        Dtypes{{"stem", fp32}, {"middle", fp32}, {"head", bf16}});
  const Dtypes all_fp32 = {{"stem", fp32}, {"middle", fp32}, {"head", fp32}};
  CHECK(input_dtypes(DType::fp32, true) == all_fp32);
  CHECK(input_dtypes(DType::fp32, false) == all_fp32);
}

TEST_CASE("token ids are never cast, and our own models cast for themselves", "[own]") {
  const models::OwnModel model = small_model();
  planner::Strategy strategy = strategy_of(StrategyKind::fsdp, 1, kGlobalBatch);
  strategy.param_dtype = DType::bf16;
  CHECK(std::isfinite(sharded_losses(model, strategy).back()));

  static const models::Dataset data = models::load_dataset("fashion-mnist");
  const models::ModelSpec vit = models::find_spec("vit-tutorial");
  strategy.batch = 8;
  runtime::ExecutorOptions options;
  const auto cast = train_losses(vit, data.train, strategy, 2, options);
  options.cast_inputs = false;
  CHECK(cast == train_losses(vit, data.train, strategy, 2, options));
}

TEST_CASE("an invalid own model is refused in one line", "[own]") {
  const models::OwnParameter weight{"w", {2, 2}};
  CHECK_THAT(refusal({}), ContainsSubstring("model mine") && ContainsSubstring("no parameters"));
  CHECK_THROWS_AS(models::make_own_model("", kTokens, {{"a", block, {weight}}}),
                  std::invalid_argument);
  CHECK_THAT(refusal({{"", block, {weight}}}), ContainsSubstring("has no name"));
  CHECK_THAT(refusal({{"a", {}, {weight}}}), ContainsSubstring("a: has no function"));
  CHECK_THAT(refusal({{"a", block, {weight}}, {"a", block, {}}}),
             ContainsSubstring("there are two"));
  CHECK_THAT(refusal({{"a", block, {weight, weight}}}), ContainsSubstring("names its parameter w"));
  CHECK_THAT(refusal({{"a", block, {{"", {2}}}}}), ContainsSubstring("has no name"));
  CHECK_THAT(refusal({{"a", block, {{"w", {2, 0}}}}}), ContainsSubstring("shape [2, 0]"));
  CHECK_THAT(refusal({{"a", block, {weight}}, {"b", block, {{"w", {3}}}}}),
             ContainsSubstring("b: parameter w has shape [3]") && ContainsSubstring("[2, 2]"));
  CHECK(refusal({{"a", block, {weight}}}) == "accepted");
}

TEST_CASE("a parameter that its unit does not use is named", "[own]") {
  models::OwnModel model =
      models::make_own_model("unused", kTokens,
                             {{"embed", embed, {{"embeddings.weight", {kVocab, kWidth}}}},
                              {"head",
                               [](const at::Tensor& x, Weights w) {
                                 return at::linear(x.reshape({-1, kWidth}), w[0]);
                               },
                               {{"head.weight", {kVocab, kWidth}}, {"head.bias", {kVocab}}}}});
  model.loss = smoothed_loss;
  const auto strategy = strategy_of(StrategyKind::fsdp, 2, 4);
  CHECK_THROWS_MATCHES(
      sharded_losses(model, strategy), std::invalid_argument,
      MessageMatches(ContainsSubstring("unit head: no gradient came for head.bias,") &&
                     ContainsSubstring("--freeze 'head.bias'")));
}

TEST_CASE("a loss that is not a scalar is refused", "[own]") {
  models::OwnModel model = small_model();
  model.loss = [](const at::Tensor& output, const at::Tensor&) { return output.sum(1); };
  CHECK_THROWS_MATCHES(sharded_losses(model, strategy_of(StrategyKind::fsdp, 1, kGlobalBatch)),
                       std::invalid_argument,
                       MessageMatches(ContainsSubstring("48 elements; give one")));
}

TEST_CASE("an own model's start weights are drawn from --seed", "[own]") {
  models::OwnModel model = small_model();
  const auto drawn = [&](uint64_t seed) {
    std::vector<at::Tensor> values;
    models::draw_parameters(model, seed, [&](int, const at::Tensor& v) { values.push_back(v); });
    return values;
  };
  CHECK(drawn(1)[0].std().item<double>() > 0.9);  // an embedding is normal
  CHECK(at::equal(drawn(1)[1], at::ones({kWidth})));
  model.draw = [](const models::ParameterSpec& parameter, at::Generator& generator) {
    return at::empty(parameter.shape).uniform_(0, 1, generator);
  };
  CHECK(at::equal(drawn(1)[3], drawn(1)[3]));
  CHECK_FALSE(at::equal(drawn(1)[3], drawn(2)[3]));
  model.draw = [](const models::ParameterSpec&, at::Generator&) { return at::ones({3}); };
  CHECK_THROWS_MATCHES(drawn(1), std::invalid_argument,
                       MessageMatches(ContainsSubstring("[3], not fp32 of [40, 16]")));
}

namespace {

/// The example, as a user would start it.
ProcessEnd run_example(const TemporaryFolder& storage, std::vector<std::string> flags) {
  flags.insert(flags.begin(), {SHARDLENS_OWN_MODEL, "--storage", storage.file("runs"), "--name",
                               "r", "--log-every", "1", "--fresh"});
  return run(flags);
}

std::vector<double> example_losses(const std::vector<std::string>& flags) {
  const TemporaryFolder storage;
  const ProcessEnd ended = run_example(storage, flags);
  CAPTURE(flags, ended.err, ended.out);
  REQUIRE(ended.exit_code == 0);
  std::ifstream lines(storage.file("runs/r/metrics.jsonl"));
  std::vector<double> losses;
  for (std::string line; std::getline(lines, line);) {
    losses.push_back(nlohmann::json::parse(line).at("loss").get<double>());
  }
  return losses;
}

}  // namespace

TEST_CASE("the example of an own model trains, sharded as on one rank", "[own][train]") {
  const std::vector<std::string> steps = {"--device", "cpu", "--steps", "40"};
  const auto losses = [&](std::vector<std::string> flags) {
    flags.insert(flags.end(), steps.begin(), steps.end());
    return example_losses(flags);
  };
  const auto one = losses({"--strategy", "single", "--batch", "64"});
  REQUIRE(one.size() == 40);
  CHECK(one.back() < 0.5 * one.front());
  const auto two = losses({"--workers", "2", "--batch", "32"});
  const auto bf16 = losses({"--workers", "2", "--batch", "32", "--param-dtype", "bf16"});
  for (size_t step = 0; step < one.size(); ++step) {
    CAPTURE(step);
    CHECK(std::abs(two[step] / one[step] - 1) < 1e-4);
  }
  CHECK(bf16 != two);
  CHECK(bf16.back() < 0.5 * bf16.front());
}

TEST_CASE("the example runs on the null device, too", "[own][null]") {
  const TemporaryFolder storage;
  const ProcessEnd ended =
      run_example(storage, {"--device", "null:h200", "--world", "8", "--solo-rank", "3", "--steps",
                            "3", "--param-dtype", "bf16"});
  CAPTURE(ended.err);
  CHECK(ended.exit_code == 0);
  CHECK_THAT(ended.out, ContainsSubstring("during steps: "));
}

TEST_CASE("flags that an own model has no use for are refused", "[own][train]") {
  const TemporaryFolder storage;
  const auto told = [&](const std::vector<std::string>& flags) {
    const ProcessEnd ended = run_example(storage, flags);
    CHECK(ended.exit_code == 2);
    CHECK(std::count(ended.err.begin(), ended.err.end(), '\n') == 1);
    return ended.err;
  };
  CHECK_THAT(told({"--device", "cpu", "--model", "llama-1b"}),
             ContainsSubstring("its own model own"));
  CHECK_THAT(told({"--device", "cpu", "--data", "fashion-mnist"}),
             ContainsSubstring("own samples"));
  CHECK_THAT(told({"--device", "cpu", "--data", "synthetic"}), ContainsSubstring("no classes"));
  CHECK_THAT(told({"--device", "cpu", "--seq", "8"}), ContainsSubstring("--seq 8"));
  CHECK_THAT(told({"--device", "cpu", "--batch", "5000"}), ContainsSubstring("4096 samples"));
}

namespace {

ProcessEnd run_program(const TemporaryFolder& storage, const std::string& name) {
  return run({SHARDLENS_OWN_PROGRAMS, name, "--device", "cpu", "--workers", "2", "--batch", "8",
              "--epochs", "4", "--lr", "0.1", "--storage", storage.file("runs"), "--name", "r"});
}

}  // namespace

TEST_CASE("a program's samples are used for training and testing", "[own][train]") {
  const TemporaryFolder storage;
  const ProcessEnd ended = run_program(storage, "classifier");
  CAPTURE(ended.err, ended.out);
  REQUIRE(ended.exit_code == 0);
  const auto result = nlohmann::json::parse(read_file(storage.file("runs/r/result.json")));
  CHECK(result.at("test_accuracy") == 1.0);
  CHECK(result.at("steps") == 24);  // 96 samples, 2 ranks, batch 8, 4 epochs
}

TEST_CASE("an error in a program's model ends its run with exit code 2", "[own][train]") {
  const TemporaryFolder storage;
  const std::pair<const char*, const char*> cases[] = {
      {"unused-parameter", "unit only: no gradient came for spare.weight"},
      {"short-of-samples", "asked for 8, they gave an input of 2 rows"},
      {"tested-without-classes",
       "test samples count how often the largest output is the target's"}};
  for (const auto& [name, told] : cases) {
    const ProcessEnd ended = run_program(storage, name);
    CAPTURE(name, ended.err, ended.out);
    CHECK(ended.exit_code == 2);
    CHECK(std::count(ended.err.begin(), ended.err.end(), '\n') == 1);
    CHECK_THAT(ended.err, ContainsSubstring(told));
    std::filesystem::remove_all(storage.file("runs"));
  }
}
