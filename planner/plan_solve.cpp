#include "planner/plan_solve.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <vector>

#include "planner/prepared_run.h"

namespace shardlens::planner {

namespace {

using models::ModelSpec;

/// One of the configurations that are tried.
struct Trial {
  ModelSpec spec;
  Config config;
  PlanTarget target;
};

bool fits(const Trial& tried, const PlanOptions& options) {
  try {
    const PreparedRun run = prepare(tried.spec, tried.config, tried.target, options.outside);
    const int64_t left = *tried.target.capacity_bytes - run.outside.total_bytes();
    if (left <= 0) return false;
    if (tried.target.gpu != nullptr) return simulate(run, options.allocator, left).fits();
    return simulate(run, options.allocator).simulation->peak().allocated_bytes <= left;
  } catch (const std::invalid_argument&) {
    return false;  // sizes or ranks that do not work
  }
}

using Predicate = std::function<bool(int64_t)>;

/// Returns the largest number from 1 to `most` for which `holds` is true; 0: there is none.
int64_t find_largest(const Predicate& holds, int64_t most) {
  if (!holds(1)) return 0;
  int64_t low = 1, high = 2;
  while (high <= most && holds(high)) low = std::exchange(high, 2 * high);
  high = std::min(high, most + 1);
  while (high - low > 1) {
    const int64_t middle = low + (high - low) / 2;
    (holds(middle) ? low : high) = middle;
  }
  return low;
}

/// Returns the smallest number for which `holds` is true; 0: there is none up to `most`.
int64_t find_smallest(const Predicate& holds, int64_t most) {
  int64_t high = 1;
  while (high <= most && !holds(high)) high *= 2;
  if (high > most) return 0;
  int64_t low = high / 2;
  while (high - low > 1) {
    const int64_t middle = low + (high - low) / 2;
    (holds(middle) ? high : low) = middle;
  }
  return high;
}

ModelSpec with_number_of_layers(const ModelSpec& spec, int64_t layers) {
  std::optional<ModelSpec> changed = models::with_layers(spec, layers);
  if (changed) return *std::move(changed);
  throw std::invalid_argument(fmt::format(
      "--solve layers: the model {} has no number of layers; give batch, world or gpu", spec.name));
}

/// Returns a number that must divide the ranks.
int64_t rank_step(const Config& config) {
  if (config.strategy == StrategyKind::single) {
    throw std::invalid_argument(
        "--solve world: single is one rank; give --strategy fsdp, hsdp or ddp");
  }
  const int64_t kept = config.reshard_after_forward.kept;
  return std::max<int64_t>(1, kept) * std::max<int64_t>(1, config.replicas);
}

Config with_world(const Config& config, int64_t world) {
  Config changed = config;
  changed.world = world;
  changed.workers = 1;
  if (config.solo_rank >= world) changed.solo_rank = -1;
  return changed;
}

Plan solved_plan(const Trial& tried, const PlanOptions& options, const std::string& what,
                 const std::string& value) {
  Plan plan = make_plan(tried.spec, tried.config, tried.target, options);
  plan.solution = PlanSolution{what, value};
  return plan;
}

std::string text_of(int64_t value) { return value == 0 ? "" : std::to_string(value); }

Plan solve_batch(Trial base, const PlanOptions& options) {
  constexpr int64_t kMost = int64_t{1} << 32;
  const int64_t found = find_largest(
      [&](int64_t batch) {
        base.config.batch = batch;
        return fits(base, options);
      },
      kMost);
  base.config.batch = std::max<int64_t>(1, found);
  return solved_plan(base, options, "batch", text_of(found));
}

Plan solve_world(Trial base, const PlanOptions& options) {
  constexpr int64_t kMostRanks = 1 << 16;
  const int64_t step = rank_step(base.config);
  const Config config = base.config;
  const int64_t found = step * find_smallest(
                                   [&](int64_t steps) {
                                     base.config = with_world(config, steps * step);
                                     return fits(base, options);
                                   },
                                   kMostRanks / step);
  base.config = with_world(config, found > 0 ? found : std::max(step, kMostRanks / step * step));
  return solved_plan(base, options, "world", text_of(found));
}

Plan solve_layers(Trial base, const PlanOptions& options) {
  constexpr int64_t kMost = 10000;
  const ModelSpec spec = base.spec;
  const int64_t found = find_largest(
      [&](int64_t layers) {
        base.spec = with_number_of_layers(spec, layers);
        return fits(base, options);
      },
      kMost);
  base.spec = with_number_of_layers(spec, std::max<int64_t>(1, found));
  return solved_plan(base, options, "layers", text_of(found));
}

Plan solve_gpu(const Config& config, const PlanOptions& options) {
  if (config.device.kind == DeviceKind::cpu || !config.capacity.empty() || !options.gpu.empty()) {
    throw std::invalid_argument(
        "--solve gpu: each known GPU is tried with its own memory; leave out --gpu, --device and "
        "--capacity");
  }
  std::vector<const Gpu*> by_memory;
  for (const Gpu& gpu : gpus()) by_memory.push_back(&gpu);
  std::ranges::stable_sort(by_memory, {}, &Gpu::memory_bytes);
  Trial tried{spec_of(config), config, {}};
  const TrainingData data = find_data(tried.spec, config);
  for (const Gpu* gpu : by_memory) {
    tried.target = {
        .gpu = gpu, .is_null = false, .capacity_bytes = gpu->memory_bytes, .data = data};
    if (options.torch != nullptr) tried.target.torch = options.torch;
    if (fits(tried, options)) return solved_plan(tried, options, "gpu", std::string(gpu->name));
  }
  return solved_plan(tried, options, "gpu", "");
}

}  // namespace

Plan solve(const std::string& what, const Config& config, const PlanOptions& options) {
  if (what == "gpu") return solve_gpu(config, options);
  const auto is = [&](const char* word) { return what == word; };
  if (!is("batch") && !is("world") && !is("layers")) {
    throw std::invalid_argument(
        fmt::format("--solve {}: not a valid value; give batch, world, layers or gpu", what));
  }
  Trial base{spec_of(config), config, target_of(config, options)};
  base.target.data = find_data(base.spec, config);
  if (is("batch")) return solve_batch(base, options);
  return is("world") ? solve_world(base, options) : solve_layers(base, options);
}

}  // namespace shardlens::planner
