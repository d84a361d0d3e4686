#include "planner/prepared_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <utility>
#include <vector>

namespace shardlens::planner {

namespace {

double tokens_of(const models::ModelSpec& spec) {
  const models::SampleSpec& sample = spec.sample;
  int64_t tokens = sample.input == models::InputKind::tokens ? sample.shape[0] : 1;
  for (const models::UnitSpec& unit : spec.units) tokens = std::max(tokens, unit.rows);
  return static_cast<double>(tokens);
}

double product(const std::vector<int64_t>& sizes) {
  double result = 1;
  for (const int64_t size : sizes) result *= static_cast<double>(size);
  return result;
}

/// Throws if a sum over all tensors could overflow 64 bits. The check is in floating point, so that
/// it comes before any product overflows.
void check_sizes(const models::ModelSpec& spec, const Config& config) {
  constexpr double kMostBytes = 0x1p62;
  constexpr double kBytesAnElement = 8;    // fp64 at most
  constexpr double kTensorsAUnit = 32;     // alive at once, more than in any unit
  constexpr double kBytesAParameter = 32;  // masters, moments, gradients, copies
  double parameters = 0, widest = 1;
  for (const models::ParameterSpec& parameter : spec.parameters) {
    parameters += product(parameter.shape);
    widest = std::max(widest, static_cast<double>(parameter.shape[0]));
  }
  double heads = 0;
  for (const models::UnitSpec& unit : spec.units) {
    heads = std::max(heads, static_cast<double>(unit.attention.heads));
  }
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

/// Reads the checkpoint flags as the planned program would read them, on the device that it would
/// have.
Checkpointing checkpointing_of_run(const PreparedRun& run) {
  Config config = run.asked;
  config.data = run.data.kind == DataKind::synthetic ? kSyntheticData : "";
  config.device = run.target.device();
  config.capacity.clear();
  return checkpointing_of(config);
}

/// Returns the rank that stands for all: the one that was asked for, else the last, which writes
/// the most into a checkpoint.
int rank_of(const PreparedRun& run) {
  const int64_t asked = run.asked.solo_rank;
  return static_cast<int>(asked >= 0 ? asked : world_size_of(run.asked) - 1);
}

/// Throws if the outside memory is known for another GPU than the target's.
void check_outside(const KnownOutside& known, const PlanTarget& target) {
  const bool has_outside = target.gpu != nullptr && !target.is_null;
  if (known.bytes && !has_outside) {
    throw std::invalid_argument(
        "--beside: only applies to a plan for a real GPU; leave it out, or give --gpu NAME");
  }
  const auto& calibration = known.calibration;
  if (!has_outside || !calibration || calibration->gpu.empty()) return;
  if (calibration->gpu == target.gpu->display_name) return;
  throw std::invalid_argument(
      fmt::format("--calibration {}: recorded on {}, but this plan is for {}; give a run on such a "
                  "GPU",
                  calibration->source, calibration->gpu, target.gpu->display_name));
}

}  // namespace

models::ModelSpec spec_of(const Config& config) {
  return models::find_spec(config.model, config.seq);
}

PreparedRun prepare(models::ModelSpec spec, const Config& config, const PlanTarget& target,
                    const KnownOutside& outside) {
  check_sizes(spec, config);
  check_outside(outside, target);
  PreparedRun run{.spec = std::move(spec),
                  .asked = config,
                  .config = one_rank_of(config, target),
                  .target = target,
                  .train = {},
                  .evaluate = {},
                  .outside = {},
                  .data = {}};
  if (!run.target.data) run.target.data = find_data(run.spec, config);
  run.data = *run.target.data;
  check_data(run.data, run.spec, config);
  run.checkpointing = checkpointing_of_run(run);
  const Strategy strategy = strategy_of(run.config);
  run.train = build_schedule(run.spec, strategy, Pass::train);
  run.evaluate = build_schedule(run.spec, strategy, Pass::evaluate);
  if (target.gpu != nullptr && !target.is_null) {
    run.outside = outside_memory(*target.gpu, run.train, config.communicators, outside);
  }
  return run;
}

namespace {

std::unique_ptr<Simulation> make_simulation(const PreparedRun& run,
                                            const AllocatorSettings& settings) {
  const SimulationOptions options{.rank = rank_of(run),
                                  .gpu = run.target.gpu,
                                  .torch = run.target.torch,
                                  .allocator = settings,
                                  .data = run.data,
                                  .checkpointing = run.checkpointing,
                                  .every_microbatch = run.every_microbatch};
  return std::make_unique<Simulation>(run.spec, run.config, run.train, run.evaluate, options);
}

}  // namespace

RunResult simulate(const PreparedRun& run, const AllocatorSettings& settings,
                   int64_t capacity_bytes) {
  AllocatorSettings limited = with_rules(settings, *run.target.torch);
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
  return step_cost(run.spec, run.config, run.train, run.target.gpu);
}

std::optional<StepTime> time_of(const PreparedRun& run, const StepCost& cost) {
  if (run.target.gpu == nullptr) return std::nullopt;
  return planned_time(cost, run.spec, run.config, run.train, *run.target.gpu);
}

StepCost evaluation_cost_of(const PreparedRun& run) {
  return step_cost(run.spec, run.config, run.evaluate, run.target.gpu);
}

int64_t device_bytes(const PreparedRun& run, const SimulatedPeak& peak) {
  return peak.reserved_bytes + run.outside.total_bytes();
}

}  // namespace shardlens::planner
