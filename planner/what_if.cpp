#include "planner/what_if.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <stdexcept>

#include "planner/parallel.h"

namespace shardlens::planner {

namespace {

struct Change {
  std::string words;
  Config config;
  bool expandable_segments = false;
};

class Changes {
 public:
  explicit Changes(const Config& base) : base_(base) {}

  template <class Apply>
  void add(bool applies, std::string words, const Apply& apply) {
    if (!applies) return;
    Change change{std::move(words), base_, false};
    apply(change.config);
    changes.push_back(std::move(change));
  }

  std::vector<Change> changes;

 private:
  const Config& base_;
};

void add_dtypes(Changes& changes, const Config& base, int64_t world) {
  changes.add(base.param_dtype == DType::fp32, "--param-dtype bf16",
              [](Config& c) { c.param_dtype = DType::bf16; });
  changes.add(base.reduce_dtype == DType::fp32 && world > 1, "--reduce-dtype bf16",
              [](Config& c) { c.reduce_dtype = DType::bf16; });
}

void add_layouts(Changes& changes, const Config& base, int64_t world) {
  const bool shards = is_sharded(base.strategy);
  changes.add(base.strategy == StrategyKind::ddp && world > 1, "--strategy fsdp",
              [](Config& c) { c.strategy = StrategyKind::fsdp; });
  changes.add(base.strategy == StrategyKind::hsdp, "--strategy fsdp", [](Config& c) {
    c.strategy = StrategyKind::fsdp;
    c.replicas = 1;
  });
  changes.add(shards && base.reshard_after_forward.mode != Reshard::yes,
              "--reshard-after-forward true",
              [](Config& c) { c.reshard_after_forward = {.mode = Reshard::yes}; });
  changes.add(shards && (base.backward_prefetch > 0 || base.forward_prefetch > 0),
              "--forward-prefetch 0 --backward-prefetch 0",
              [](Config& c) { c.forward_prefetch = c.backward_prefetch = 0; });
  changes.add(shards, fmt::format("{} ranks, not {}", 2 * world, world), [&](Config& c) {
    c.world = 2 * world;
    c.workers = 1;
  });
}

void add_batches(Changes& changes, const Config& base) {
  const int64_t half = base.batch / 2;
  changes.add(half > 0, fmt::format("--batch {}", half), [&](Config& c) { c.batch = half; });
  changes.add(half > 0 && base.batch % 2 == 0,
              fmt::format("--batch {} --accumulate {}", half, 2 * base.accumulate), [&](Config& c) {
                c.batch = half;
                c.accumulate = 2 * base.accumulate;
              });
}

std::vector<Change> changes_of(const PreparedRun& run, const AllocatorSettings& settings) {
  const Config& base = run.asked;
  const int64_t world = world_size_of(base);
  Changes changes(base);
  add_dtypes(changes, base, world);
  changes.add(base.recompute.every != 1, "--recompute full",
              [](Config& c) { c.recompute = {.every = 1}; });
  changes.add(base.offload == Offload::none, "--offload optimizer",
              [](Config& c) { c.offload = Offload::optimizer; });
  changes.add(base.offload != Offload::all, "--offload all",
              [](Config& c) { c.offload = Offload::all; });
  add_layouts(changes, base, world);
  add_batches(changes, base);
  if (run.target.gpu != nullptr && !settings.expandable_segments) {
    changes.changes.push_back({"PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True", base, true});
  }
  return changes.changes;
}

std::optional<WhatIf> outcome_of(const PreparedRun& run, const Plan& plan,
                                 const PlanOptions& options, const Change& change) {
  AllocatorSettings settings = options.allocator;
  settings.expandable_segments |= change.expandable_segments;
  try {
    const PreparedRun other = prepare(run.spec, change.config, run.target, options.outside);
    const RunResult result = simulate(other, settings);
    const StepCost cost = cost_of(other), base = cost_of(run);
    return WhatIf{
        .change = change.words,
        .device_bytes = device_bytes(other, result.simulation->peak()) - plan.least_fast_bytes,
        .step_time_ratio = cost.seconds / base.seconds,
        .compute_time_ratio = cost.compute_seconds / base.compute_seconds};
  } catch (const std::invalid_argument&) {
    return std::nullopt;  // a change that this model or these ranks do not allow
  }
}

}  // namespace

std::vector<WhatIf> what_ifs_of(const PreparedRun& run, const Plan& plan,
                                const PlanOptions& options) {
  const std::vector<Change> changes = changes_of(run, options.allocator);
  std::vector<std::optional<WhatIf>> outcomes(changes.size());
  for_all(changes.size(),
          [&](size_t i) { outcomes[i] = outcome_of(run, plan, options, changes[i]); });
  std::vector<WhatIf> what_ifs;
  for (const auto& outcome : outcomes) {
    if (outcome && outcome->device_bytes < 0) what_ifs.push_back(*outcome);
  }
  std::ranges::stable_sort(what_ifs, {}, &WhatIf::device_bytes);
  return what_ifs;
}

}  // namespace shardlens::planner
