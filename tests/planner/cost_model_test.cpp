#include "planner/cost_model.h"
#include "models/families.h"

#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <numeric>
#include <string>

#include "planner/config/arguments.h"
#include "planner/prepared_run.h"

using namespace shardlens;
using namespace shardlens::planner;
using Catch::Approx;

namespace {

double model_flops(const std::string& name, int64_t batch) {
  const models::ModelSpec spec = models::find_spec(name);
  return std::accumulate(spec.units.begin(), spec.units.end(), 0.0,
                         [&](double sum, const models::UnitSpec& unit) {
                           return sum + forward_flops(spec, unit, batch);
                         });
}

StepCost cost(const std::vector<std::string>& flags) {
  const Config config = parse_arguments(flags).config;
  const PreparedRun run = prepare(spec_of(config), config, target_of(config, ""), {});
  return cost_of(run);
}

constexpr Rates kRates = {.fp32_tflops = 10,
                          .half_tflops = 100,
                          .memory_gbps = 1000,
                          .link_gbps = 100,
                          .network_gbps = 10,
                          .copy_gbps = 50};

/// One collective of 1 GB from each of `world` ranks, on a model that computes next to nothing.
double collective_seconds(ActionKind kind, int world, int shards, Channel channel) {
  const models::ModelSpec spec =
      models::make_spec("m", models::MlpSizes{.inputs = 1, .width = 1, .classes = 1});
  Schedule schedule;
  schedule.world_size = world;
  schedule.shards = shards;
  schedule.actions = {{.kind = kind,
                       .channel = channel,
                       .waits = {},
                       .reads = {},
                       .writes = {},
                       .bytes = 1000000000}};
  Config config;
  config.device = device_named("cpu");
  return step_cost(spec, config, schedule, kRates).seconds;
}

}  // namespace

TEST_CASE("floating-point operations of ViTs are those that torchvision documents",
          "[planner][cost]") {
  // torchvision.models: GFLOPS (multiply-adds) of one image: ViT_B_16, ViT_L_16, ViT_H_14 at 224.
  CHECK(model_flops("vit-b16", 1) / 2e9 == Approx(17.56).epsilon(0.01));
  CHECK(model_flops("vit-l16", 1) / 2e9 == Approx(61.55).epsilon(0.01));
  CHECK(model_flops("vit-h14", 1) / 2e9 == Approx(167.29).epsilon(0.01));
  CHECK(model_flops("vit-l16", 8) == Approx(8 * model_flops("vit-l16", 1)));
}

TEST_CASE("a decoder takes two operations a parameter and token, and its attention",
          "[planner][cost]") {
  const models::ModelSpec spec = models::find_spec("llama-8b");
  const auto embedding = static_cast<double>(spec.as<models::LlamaSizes>().vocab *
                                             spec.as<models::LlamaSizes>().width);
  const double tokens = 2048, layers = 32, width = 4096;
  const double expected = 2 * tokens * (static_cast<double>(spec.numel()) - embedding) +
                          layers * 2 * tokens * tokens * width;
  CHECK(model_flops("llama-8b", 1) == Approx(expected).epsilon(0.001));
}

TEST_CASE("a collective takes what its busiest link carries", "[planner][cost]") {
  const double in_node = 100e9 * 0.7, network = 10e9 * 0.7;
  CHECK(collective_seconds(ActionKind::all_gather, 4, 4, Channel::gather) ==
        Approx(3e9 / in_node).epsilon(0.01));
  CHECK(collective_seconds(ActionKind::reduce_scatter, 4, 4, Channel::reduce) ==
        Approx(0.75e9 / in_node).epsilon(0.01));
  CHECK(collective_seconds(ActionKind::all_reduce, 4, 4, Channel::reduce) ==
        Approx(1.5e9 / in_node).epsilon(0.01));
  // Over nodes the eight neighbours share their adapters; a set of ranks 8 apart has one a node.
  CHECK(collective_seconds(ActionKind::all_reduce, 64, 64, Channel::reduce) ==
        Approx(2e9 * 63 / 64 / (8 * network)).epsilon(0.01));
  CHECK(collective_seconds(ActionKind::all_reduce, 64, 8, Channel::replicate) ==
        Approx(2e9 * 7 / 8 / network).epsilon(0.01));
  CHECK(collective_seconds(ActionKind::all_reduce, 8, 1, Channel::none) == 0);
}

TEST_CASE("an action begins after its stream and the actions it waits for", "[planner][cost]") {
  for (const char* strategy : {"ddp", "fsdp"}) {
    const std::vector<std::string> flags = {"--model",    "vit-b16", "--world",  "8",
                                            "--strategy", strategy,  "--device", "null:h200"};
    const Config config = parse_arguments(flags).config;
    const PreparedRun run = prepare(spec_of(config), config, target_of(config, ""), {});
    const StepCost cost = cost_of(run);
    std::array<double, kStreams> ends{};
    double last = 0;
    for (size_t i = 0; i < run.train.actions.size(); ++i) {
      const Action& action = run.train.actions[i];
      double& stream = ends[static_cast<size_t>(action.stream)];
      CHECK(cost.begin_seconds[i] >= stream);
      for (const int wait : action.waits) {
        CHECK(cost.begin_seconds[i] >= cost.end_seconds[static_cast<size_t>(wait)]);
      }
      stream = cost.end_seconds[i];
      last = std::max(last, stream);
    }
    CHECK(cost.seconds == last);
    CHECK(cost.compute_seconds + cost.exposed_seconds == Approx(cost.seconds));
  }
}

TEST_CASE("recomputing all blocks costs about a third more compute", "[planner][cost]") {
  const std::vector<std::string> base = {"--model", "vit-l16", "--device", "null:h100"};
  std::vector<std::string> full = base;
  full.insert(full.end(), {"--recompute", "full"});
  const double ratio = cost(full).compute_seconds / cost(base).compute_seconds;
  CHECK(ratio > 1.30);
  CHECK(ratio < 1.34);
}

TEST_CASE("every GPU has rates, and a CPU has those of its threads", "[planner][cost]") {
  for (const Gpu& gpu : gpus()) {
    const Rates rates = rates_of(&gpu, 1);
    CHECK(rates.half_tflops >= rates.fp32_tflops);
    CHECK(rates.memory_gbps > rates.link_gbps / 4);
  }
  CHECK(rates_of(nullptr, 4).fp32_tflops == Approx(4 * rates_of(nullptr, 1).fp32_tflops));
}
