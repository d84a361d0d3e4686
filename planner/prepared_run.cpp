#include "planner/prepared_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>
#include <stdexcept>
#include <utility>
#include <vector>

namespace shardlens::planner {

namespace {

double tokens_of(const models::ModelSpec& spec) {
  const models::SampleSpec& sample = spec.sample;
  if (sample.input == models::InputKind::images) return static_cast<double>(spec.vit.tokens());
  return sample.input == models::InputKind::tokens ? static_cast<double>(sample.shape[0]) : 1;
}

double product(const std::vector<int64_t>& sizes) {
  double result = 1;
  for (const int64_t size : sizes) result *= static_cast<double>(size);
  return result;
}

/// No sum over all tensors may leave 64 bits: what would is refused before it is multiplied.
void check_sizes(const models::ModelSpec& spec, const Config& config) {
  constexpr double kMostBytes = 0x1p62;
  constexpr double kBytesAnElement = 8;    // fp64 at most
  constexpr double kTensorsAUnit = 32;     // alive at once, more than any has
  constexpr double kBytesAParameter = 32;  // masters, moments, gradients, copies
  double parameters = 0, widest = 1;
  for (const models::ParameterSpec& parameter : spec.parameters) {
    parameters += product(parameter.shape);
    widest = std::max(widest, static_cast<double>(parameter.shape[0]));
  }
  const auto heads = static_cast<double>(std::max(spec.vit.heads, spec.llama.heads));
  const double tokens = tokens_of(spec);
  const double sample =
      std::max(product(spec.sample.shape), tokens * std::max(widest, heads * tokens));
  const double activations = static_cast<double>(config.batch) * sample * kBytesAnElement *
                             kTensorsAUnit * static_cast<double>(spec.units.size());
  if (activations + parameters * kBytesAParameter < kMostBytes) return;
  throw std::invalid_argument(
      fmt::format("--model {} with --batch {}: its tensors could have more than 2^62 bytes; give "
                  "smaller sizes",
                  config.model, config.batch));
}

/// The packaged images, where the runtime would take them: a rank keeps all of them on its device.
/// Of a user's folder nothing is known here; one batch stands for it.
std::optional<ResidentImages> images_of(const models::ModelSpec& spec, const Config& config) {
  constexpr ResidentImages kFashionMnist = {60000, 10000, 28, 28};
  const bool takes_them = spec.sample.input == models::InputKind::images &&
                          spec.vit.image_px == kFashionMnist.height && spec.vit.channels == 1;
  if (config.data != "fashion-mnist" && !(config.data == "auto" && takes_them)) return std::nullopt;
  const int64_t world = world_size_of(config);
  const int64_t samples = (kFashionMnist.train_samples + world - 1) / world;
  if (takes_them && config.batch <= samples / config.accumulate) return kFashionMnist;
  throw std::invalid_argument(
      takes_them ? fmt::format(
                       "--batch {}: each of {} ranks has {} samples of fashion-mnist; give --batch "
                       "{} or less, or --data synthetic",
                       config.batch, world, samples, samples)
                 : fmt::format("--data fashion-mnist: the model {} takes other inputs; give --data "
                               "synthetic",
                               config.model));
}

void check_calibration(const Calibration* calibration, const Gpu& gpu) {
  if (calibration == nullptr || calibration->gpu.empty()) return;
  if (calibration->gpu == gpu.display_name) return;
  throw std::invalid_argument(
      fmt::format("--calibration {}: recorded on {}, but this plan is for {}; give a run on such a "
                  "GPU",
                  calibration->source, calibration->gpu, gpu.display_name));
}

}  // namespace

models::ModelSpec spec_of(const Config& config) {
  return models::find_spec(config.model, config.seq);
}

PreparedRun prepare(models::ModelSpec spec, const Config& config, const PlanTarget& target,
                    const Calibration* calibration) {
  check_sizes(spec, config);
  PreparedRun run{.spec = std::move(spec),
                  .asked = config,
                  .config = one_rank_of(config, target),
                  .target = target,
                  .train = {},
                  .evaluate = {},
                  .outside = {},
                  .images = {}};
  run.images = images_of(run.spec, config);
  const Strategy strategy = strategy_of(run.config);
  run.train = build_schedule(run.spec, strategy, Pass::train);
  run.evaluate = build_schedule(run.spec, strategy, Pass::evaluate);
  if (target.gpu != nullptr && !target.is_null) {
    check_calibration(calibration, *target.gpu);
    run.outside = outside_memory(*target.gpu, run.train, config.communicators, calibration);
  }
  return run;
}

namespace {

std::unique_ptr<RankSimulation> make_simulation(const PreparedRun& run,
                                                const AllocatorSettings& settings) {
  const int rank = static_cast<int>(std::max<int64_t>(0, run.asked.solo_rank));
  if (run.target.pytorch) {
    PytorchOptions options = *run.target.pytorch;
    options.rank = rank;
    options.gpu = run.target.gpu;
    options.allocator = settings;
    return std::make_unique<PytorchSimulation>(run.spec, run.config, options);
  }
  const SimulationOptions options{
      .rank = rank, .gpu = run.target.gpu, .allocator = settings, .images = run.images};
  return std::make_unique<Simulation>(run.spec, run.config, run.train, run.evaluate, options);
}

}  // namespace

RunResult simulate(const PreparedRun& run, const AllocatorSettings& settings,
                   int64_t capacity_bytes) {
  AllocatorSettings limited = settings;
  limited.capacity_bytes = capacity_bytes;
  RunResult result{.simulation = make_simulation(run, limited)};
  try {
    result.simulation->run();
  } catch (const DeviceFull&) {
    result.is_full = true;
  }
  result.retries = result.simulation->allocation_retries();
  return result;
}

StepCost cost_of(const PreparedRun& run) {
  return step_cost(run.spec, run.config, run.train, rates_of(run.target.gpu, run.config.threads));
}

StepCost evaluation_cost_of(const PreparedRun& run) {
  return step_cost(run.spec, run.config, run.evaluate,
                   rates_of(run.target.gpu, run.config.threads));
}

std::string action_words(const Schedule& schedule, int32_t action) {
  if (action < 0 || static_cast<size_t>(action) >= schedule.actions.size()) return {};
  std::istringstream words(action_to_text(schedule, action));
  std::string text, word;
  for (words >> word; words >> word && !word.starts_with("stream=");) {
    text += (text.empty() ? "" : " ") + word;
  }
  return text;
}

int64_t device_bytes(const PreparedRun& run, const SimulatedPeak& peak) {
  return peak.reserved_bytes + run.outside.total_bytes();
}

}  // namespace shardlens::planner
