// Predicts, before anything is launched, how much memory a training takes: its peak, whether it
// fits, what holds the memory at the peak, and what would change it. One rank is simulated
// allocation by allocation (simulation.h); neither a GPU nor LibTorch is needed.
//
// [Note: capacity]
// A rank may use the device's memory, less what is outside LibTorch's allocator
// (outside_memory.h). *Fits*: no request ever fails. *Fits with retries*: some request makes the
// allocator give its whole cache back first, which stalls the device, maybe in every step. *Does
// not fit*: some request fails even so. How much is reserved depends on the capacity: if the plan
// fits, peaks are those on the real device, else those on an unlimited one.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/choice.h"
#include "models/spec.h"
#include "planner/config/config.h"
#include "planner/outside_memory.h"
#include "planner/plan_target.h"
#include "planner/simulate/allocator/peak_bands.h"
#include "planner/simulate/allocator/settings.h"
#include "planner/simulate/simulation.h"
#include "planner/time/step_time.h"
#include "profiler/recording/profile.h"

namespace shardlens::planner {

using profiler::PeakBands;
using profiler::Verdict;

struct PlanOptions {
  std::string gpu{};  // --gpu; empty: as --device says
  AllocatorSettings allocator{};
  KnownOutside outside{};
  const models::TorchRules* torch = nullptr;  // --torch; null: those of this build
  bool explains = false;     // Plan::what_ifs, a simulation each, also where it fits
  bool finds_bands = false;  // Plan::bands, about 40 replays
};

/// A set of ranks that hold the same, named by the first of them. Buckets are cut into equal
/// ranges, so today all ranks of a run form one set. Their copies for a checkpoint may differ by a
/// few elements; the largest is planned.
struct RankPlan {
  int rank = 0;
  int count = 1;
  SimulatedPeak peak;
};

/// A moment of the run: its phase, step and action.
struct PlanMoment {
  profiler::Phase phase = profiler::Phase::starting;
  int64_t step = -1;
  int32_t action = -1;  // of the schedule; -1: outside a pass
  std::string action_text;
};

struct PlannedTensor {
  int64_t bytes = 0;
  profiler::Category category = profiler::Category::other;
  std::string label;
  std::string action_text;  // that made it
};

struct PlannedPeak {
  PlanMoment moment;
  std::array<int64_t, profiler::kCategories> category_bytes{};
  std::vector<PlannedTensor> largest;
};

/// A request that failed because the device has no memory for it.
struct PlanFailure {
  PlanMoment moment;
  PlannedTensor wanted;
};

/// The effect of one change of the configuration on memory and time.
struct WhatIf {
  std::string change;             // "--recompute full"
  int64_t device_bytes = 0;       // minus the plan's, each on an unlimited device
  double step_time_ratio = 1;     // to the plan's
  double compute_time_ratio = 1;  // only of units
};

/// The answer to --solve.
struct PlanSolution {
  std::string what;   // "batch"
  std::string value;  // empty: nothing fits
};

struct Plan {
  Config config;
  std::string model;
  int64_t parameters = 0;
  DeviceChoice device{};
  const models::TorchRules* torch = nullptr;  // by which memory is taken
  bool is_torch_asked = false;                // --torch, else this build's
  std::string gpu;                            // as gpus.h names it; empty on a CPU
  std::string gpu_name;                       // as the driver does

  SimulatedPeak peak;
  SimulatedPeak step_peak;
  int64_t device_bytes = 0;  // the most that is reserved, plus memory outside the allocator
  int64_t static_bytes = 0;  // held from step to step, as asked for
  int64_t pinned_bytes = 0;
  int64_t host_bytes = 0;
  OutsideMemory outside;
  std::vector<RankPlan> ranks;
  PlannedPeak at_peak;

  std::optional<int64_t> capacity_bytes;
  std::optional<int64_t>
      headroom_bytes;  // to least_fast_bytes, or if there is none, least_any_bytes
  Verdict verdict = Verdict::fits;
  int64_t retries = 0;
  std::optional<PlanFailure> failure;
  /// The least device memory for a run without retries (fast), and for one with them (any).
  int64_t least_fast_bytes = 0;
  int64_t least_any_bytes = 0;
  /// True if the run fits with PyTorch's expandable_segments, perhaps with retries; nothing if it
  /// fits without retries or uses them already.
  std::optional<bool> expandable_segments_fit;
  int64_t expandable_device_bytes = 0;

  /// The peaks over orders of addresses on an unlimited device; nothing on a CPU, or if not asked.
  std::optional<PeakBands> bands;
  /// Each says under which other addresses, or other memory outside the allocator, the verdict is
  /// another one.
  std::vector<std::string> verdict_doubts;

  std::optional<StepTime> step_time;  // nothing on a CPU
  double step_seconds = 0;            // on a CPU only to compare with those of other plans
  std::vector<WhatIf> what_ifs;
  std::optional<PlanSolution> solution;
};

/// Finds the target that the options name. Throws std::invalid_argument as target_of(config, gpu)
/// does.
PlanTarget target_of(const Config& config, const PlanOptions& options);

/// Makes the plan of a configuration. `data` is the content of --data, if the caller has looked.
/// Throws std::invalid_argument for a configuration that cannot be run.
Plan make_plan(const Config& config, const PlanOptions& options,
               const std::optional<TrainingData>& data = {});

/// Makes the plan of a model that `config` does not name.
Plan make_plan(const models::ModelSpec& spec, const Config& config, const PlanTarget& target,
               const PlanOptions& options);

/// A plan and the timeline that it was read from.
struct PlannedTimeline {
  Plan plan;
  profiler::Profile timeline;  // with the cost model's times, and a notice that nothing ran
};

/// Makes both with as few simulations as the verdict needs: one if the run fits. Changes that would
/// take less memory are simulated only if `options.explains`. Throws as make_plan does.
PlannedTimeline make_timeline(const Config& config, const PlanOptions& options);

}  // namespace shardlens::planner
