#include "planner/planner.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <stdexcept>
#include <utility>

#include "base/check.h"
#include "base/units.h"
#include "planner/predicted_timeline.h"
#include "planner/prepared_run.h"
#include "planner/simulate/allocator/replay.h"
#include "planner/what_if.h"
#include "profiler/report/report.h"

namespace shardlens::planner {

using profiler::Event;
using profiler::EventKind;

namespace {

constexpr size_t kLargestTensors = 10;

// ---- live memory --------------------------------------------------------------------------------

PlannedPeak at_peak_of(const PreparedRun& run, const Timeline& timeline) {
  profiler::Analysis analysis;
  for (const Event& event : timeline.events()) analysis.take(event);
  // A header without schedules saves a fifth of a plan's time: they would be written and read
  // again.
  const profiler::RankReport report = analysis.finish({}, timeline.strings(), {});
  PlannedPeak peak;
  const profiler::SpaceReport* space = report.main_space();
  if (space == nullptr) return peak;
  const profiler::Moment& at = space->peak_at;
  const auto words_of = [&](int32_t action) {
    return action < 0 ? "" : action_words(run.schedule_of(at.phase), action);
  };
  peak.moment = {at.phase, at.step, at.action, words_of(at.action)};
  peak.category_bytes = space->given;
  for (const profiler::NamedAllocation& tensor : space->tensors) {
    if (peak.largest.size() == kLargestTensors) break;
    peak.largest.push_back(
        {tensor.given_bytes, tensor.category, tensor.label, words_of(tensor.action_id)});
  }
  return peak;
}

/// Returns the bytes that are held when the last step begins.
int64_t static_bytes_of(const PreparedRun& run, const Timeline& timeline) {
  const auto main = run.target.gpu ? profiler::Space::device : profiler::Space::host;
  int64_t held = 0, at_step = 0;
  for (const Event& event : timeline.events()) {
    if (event.kind == EventKind::step) at_step = held;
    if (event.space != main) continue;
    if (event.kind == EventKind::alloc) held += event.value;
    if (event.kind == EventKind::free) held -= event.value;
  }
  return at_step;
}

PlanFailure failure_at(const PreparedRun& run, const Timeline& timeline, size_t index) {
  PlanFailure failure;
  PlanMoment& moment = failure.moment;
  for (size_t i = 0; i < index; ++i) {
    const Event& event = timeline.events()[i];
    if (event.kind == EventKind::phase) {
      moment.phase = static_cast<profiler::Phase>(event.value);
    } else if (event.kind == EventKind::step) {
      moment.step = event.value;
    }
  }
  const Event& event = timeline.events()[index];
  moment.action = event.action;
  moment.action_text = action_words(run.schedule_of(moment.phase), event.action);
  failure.wanted = {event.value, event.category, timeline.strings()[event.label],
                    moment.action_text};
  return failure;
}

// ---- the verdict --------------------------------------------------------------------------------

void find_least(Plan& plan, const Replay& replay, const AllocatorSettings& settings) {
  const int64_t outside = plan.outside.total_bytes();
  const auto most = static_cast<int64_t>(static_cast<double>(plan.peak.reserved_bytes) /
                                         std::max(settings.memory_fraction, 1e-3));
  plan.least_any_bytes =
      outside + replay.least_capacity_bytes(settings, plan.peak.allocated_bytes, most);
  plan.least_fast_bytes = outside + most;
}

AllocatorSettings within(const AllocatorSettings& settings, const Plan& plan,
                         int64_t outside_bytes) {
  AllocatorSettings limited = settings;
  limited.capacity_bytes = std::max<int64_t>(0, *plan.capacity_bytes - outside_bytes);
  return limited;
}

Verdict verdict_of(const ReplayResult& result) {
  if (result.failed_event) return Verdict::does_not_fit;
  return result.retries > 0 ? Verdict::fits_with_retries : Verdict::fits;
}

void judge_with(Plan& plan, const PreparedRun& run, const Timeline& timeline, const Replay& replay,
                AllocatorSettings settings) {
  settings = within(settings, plan, plan.outside.total_bytes());
  const ReplayResult result = replay.run(settings);
  plan.retries = result.retries;
  plan.verdict = verdict_of(result);
  if (result.failed_event) plan.failure = failure_at(run, timeline, *result.failed_event);
  if (plan.verdict == Verdict::fits || settings.expandable_segments) return;
  settings.expandable_segments = true;
  plan.expandable_segments_fit = !replay.run(settings).failed_event;
  settings.capacity_bytes = kUnlimitedBytes;
  plan.expandable_device_bytes =
      replay.run(settings).peak_reserved_bytes + plan.outside.total_bytes();
}

/// Looks whether less memory outside the allocator would make a verdict better, or more a verdict
/// worse.
void doubt_outside(Plan& plan, const Replay& replay, const AllocatorSettings& settings) {
  const int64_t total_bytes = plan.outside.total_bytes();
  for (const int64_t bytes : {plan.outside.least_bytes(), plan.outside.most_bytes()}) {
    if (bytes == total_bytes) continue;
    const Verdict decided = bytes < total_bytes ? Verdict::fits : Verdict::does_not_fit;
    if (plan.verdict == decided) continue;
    const Verdict verdict = verdict_of(replay.run(within(settings, plan, bytes)));
    if (verdict == plan.verdict) continue;
    plan.verdict_doubts.push_back(
        fmt::format("with {} outside the allocator, as some figures say, {}", bytes_text(bytes),
                    profiler::words_of(verdict)));
  }
}

/// Finds the bands, and whether the verdict depends on them. It does not if all that may be taken
/// is there.
void find_bands(Plan& plan, const Replay& replay, const AllocatorSettings& settings) {
  const bool addresses_decide = settings.free_block_order == models::FreeBlockOrder::address;
  plan.bands = addresses_decide
                   ? peaks_over_orders(replay, settings)
                   : profiler::exact_bands(plan.peak.allocated_bytes, plan.peak.reserved_bytes);
  const int64_t most_bytes = plan.bands->reserved.most_bytes + plan.outside.most_bytes();
  if (most_bytes <= *plan.capacity_bytes && !settings.limits_itself()) return;
  if (addresses_decide) {
    const int64_t outside_bytes = plan.outside.total_bytes();
    plan.verdict_doubts = profiler::doubts_of(
        peaks_over_orders(replay, within(settings, plan, outside_bytes)), plan.verdict);
  }
  doubt_outside(plan, replay, settings);
}

void judge_gpu(Plan& plan, const PreparedRun& run, const Timeline& timeline,
               const PlanOptions& options) {
  const AllocatorSettings settings = with_rules(options.allocator, *run.target.torch);
  const Replay replay(timeline.events());
  find_least(plan, replay, settings);
  const bool is_tight = *plan.capacity_bytes < plan.least_fast_bytes;
  if (is_tight || settings.limits_itself()) judge_with(plan, run, timeline, replay, settings);
  if (options.finds_bands) find_bands(plan, replay, settings);
}

void judge_cpu(Plan& plan) {
  plan.least_fast_bytes = plan.least_any_bytes = plan.peak.allocated_bytes;
  if (plan.peak.allocated_bytes > *plan.capacity_bytes) plan.verdict = Verdict::does_not_fit;
}

// ---- the whole ----------------------------------------------------------------------------------

void describe(Plan& plan, const PreparedRun& run) {
  plan.config = run.asked;
  plan.model = run.spec.name;
  plan.parameters = run.spec.numel();
  plan.torch = run.target.torch;
  plan.device = run.target.device();
  if (run.target.gpu != nullptr) {
    plan.gpu = run.target.gpu->name;
    plan.gpu_name = run.target.gpu->display_name;
  }
  plan.outside = run.outside;
  plan.capacity_bytes = run.target.capacity_bytes;
  const StepCost cost = cost_of(run);
  plan.step_time = time_of(run, cost);
  plan.step_seconds = cost.seconds;
}

void take_peaks(Plan& plan, const PreparedRun& run, const Simulation& simulation) {
  plan.peak = simulation.peak();
  plan.step_peak = simulation.step_peak();
  plan.pinned_bytes = simulation.pinned_peak_bytes();
  plan.host_bytes = run.target.gpu == nullptr ? 0 : simulation.host_peak_bytes();
  plan.device_bytes = device_bytes(run, plan.peak);
}

/// Returns the simulation whose peaks the plan reports: on a device as large as the target's if the
/// run fits there, else on an unlimited one.
std::unique_ptr<Simulation> judged_simulation(Plan& plan, const PreparedRun& run,
                                              const PlanOptions& options) {
  RunResult result = simulate(run, options.allocator);
  take_peaks(plan, run, *result.simulation);
  if (run.target.gpu == nullptr) {
    judge_cpu(plan);
  } else {
    judge_gpu(plan, run, result.simulation->timeline(), options);
  }
  const bool is_fast = plan.verdict == Verdict::fits;
  plan.headroom_bytes =
      *plan.capacity_bytes - (is_fast ? plan.least_fast_bytes : plan.least_any_bytes);
  if (plan.verdict != Verdict::fits_with_retries) return std::move(result.simulation);
  result = simulate(run, options.allocator, *plan.capacity_bytes - plan.outside.total_bytes());
  take_peaks(plan, run, *result.simulation);
  plan.retries = std::max(plan.retries, result.retries);  // including rounds that are left out
  return std::move(result.simulation);
}

/// Makes the plan, except for what would change it.
Plan plan_of(const PreparedRun& run, const PlanOptions& options,
             std::unique_ptr<Simulation>& simulation) {
  Plan plan;
  describe(plan, run);
  plan.is_torch_asked = options.torch != nullptr;
  simulation = judged_simulation(plan, run, options);
  plan.static_bytes = static_bytes_of(run, simulation->timeline());
  plan.at_peak = at_peak_of(run, simulation->timeline());
  plan.ranks = {{static_cast<int>(std::max<int64_t>(0, run.asked.solo_rank)), run.train.world_size,
                 plan.peak}};
  return plan;
}

}  // namespace

Plan make_plan(const models::ModelSpec& spec, const Config& config, const PlanTarget& target,
               const PlanOptions& options) {
  const PreparedRun run = prepare(spec, config, target, options.outside);
  std::unique_ptr<Simulation> simulation;
  Plan plan = plan_of(run, options, simulation);
  const bool explains = options.explains || plan.verdict != Verdict::fits;
  if (explains) plan.what_ifs = what_ifs_of(run, plan, options);
  return plan;
}

PlannedTimeline make_timeline(const Config& config, const PlanOptions& options) {
  const PreparedRun run =
      prepare(spec_of(config), config, target_of(config, options), options.outside);
  std::unique_ptr<Simulation> simulation;
  PlannedTimeline planned{.plan = plan_of(run, options, simulation), .timeline = {}};
  const bool fits = planned.plan.verdict != Verdict::does_not_fit;
  planned.timeline = predicted_profile(run, simulation->timeline(), fits);
  if (options.explains) planned.plan.what_ifs = what_ifs_of(run, planned.plan, options);
  return planned;
}

PlanTarget target_of(const Config& config, const PlanOptions& options) {
  PlanTarget target = target_of(config, options.gpu);
  if (options.torch != nullptr) target.torch = options.torch;
  return target;
}

Plan make_plan(const Config& config, const PlanOptions& options,
               const std::optional<TrainingData>& data) {
  PlanTarget target = target_of(config, options);
  target.data = data;
  return make_plan(spec_of(config), config, target, options);
}

}  // namespace shardlens::planner
