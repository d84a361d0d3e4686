// A configuration made ready to be simulated, and the result of simulating it once. All of the
// planner's questions (a plan, what would change it, a search) are answered from these.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "models/spec.h"
#include "planner/config/checkpointing.h"
#include "planner/config/training_data.h"
#include "planner/cost/planned_time.h"
#include "planner/outside_memory.h"
#include "planner/plan_target.h"
#include "planner/schedule/schedule.h"
#include "planner/simulate/allocator/settings.h"
#include "planner/simulate/simulation.h"

namespace shardlens::planner {

struct PreparedRun {
  models::ModelSpec spec;
  Config asked;   // as given
  Config config;  // of one rank
  PlanTarget target;
  Schedule train;
  Schedule evaluate;
  OutsideMemory outside;
  TrainingData data;
  Checkpointing checkpointing{};
  bool every_microbatch = false;  // simulates all of them: slow, same result

  const Schedule& schedule_of(profiler::Phase phase) const {
    return phase == profiler::Phase::evaluating ? evaluate : train;
  }
};

/// Prepares a run. Throws std::invalid_argument for a configuration that cannot be run, or a model
/// whose tensors have more than 2^62 bytes.
PreparedRun prepare(models::ModelSpec spec, const Config& config, const PlanTarget& target,
                    const KnownOutside& outside);

/// Returns the spec of the model that `config` names.
models::ModelSpec spec_of(const Config& config);

/// The result of a simulation; if the device became full, of the run until then.
struct RunResult {
  std::unique_ptr<Simulation> simulation;
  bool is_full = false;
  int64_t retries = 0;

  bool fits() const { return !is_full && retries == 0; }
};

/// Simulates the run with `capacity_bytes` for LibTorch's allocator. The result borrows the run.
RunResult simulate(const PreparedRun& run, const AllocatorSettings& settings,
                   int64_t capacity_bytes = kUnlimitedBytes);

StepCost cost_of(const PreparedRun& run);
/// Returns the time of a training step that costs as much on a GPU; nothing on a CPU.
std::optional<StepTime> time_of(const PreparedRun& run, const StepCost& cost);
StepCost evaluation_cost_of(const PreparedRun& run);

/// Returns the reserved bytes of the peak plus memory outside the allocator.
int64_t device_bytes(const PreparedRun& run, const SimulatedPeak& peak);

}  // namespace shardlens::planner
