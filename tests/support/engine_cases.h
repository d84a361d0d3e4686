// The cases that `--engine pytorch-fsdp2` is compared with, from a fixture or a stream of rows as
// tests/reference/engine_null.py writes them, and what the engine says about each.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/gpus.h"
#include "models/spec.h"
#include "models/torch_rules.h"
#include "planner/config/options.h"
#include "planner/pytorch/program.h"
#include "planner/pytorch/simulation.h"
#include "planner/simulate/timeline.h"

namespace shardlens::tests {

struct EngineCase {
  planner::Config config;
  planner::PytorchOptions options;
  bool drawn = false;
  std::optional<planner::SimulatedPeak> measured{};  // none: it did not fit the GPU
  std::string row;                                   // as it was read
};

namespace detail {

inline planner::PytorchLoop loop_of(const std::string& name) {
  if (name == "fused") return planner::PytorchLoop::fused;
  return name == "foreach" ? planner::PytorchLoop::foreach : planner::PytorchLoop::single;
}

inline planner::PytorchZeroGrad zero_grad_of(const std::string& name) {
  if (name == "after") return planner::PytorchZeroGrad::after;
  return name == "before" ? planner::PytorchZeroGrad::before : planner::PytorchZeroGrad::keep;
}

inline planner::Config config_of(const nlohmann::json& row, const std::string& gpu) {
  nlohmann::json json;
  for (const char* key :
       {"model", "world", "batch", "strategy", "replicas", "param_dtype", "reduce_dtype",
        "reshard_after_forward", "offload", "clip_norm", "accumulate", "sync"}) {
    json[key] = row.at(key);
  }
  json["solo_rank"] = row.at("rank");
  json["device"] = "null:" + gpu;
  planner::Config config;
  planner::read_json(config, json.dump(), "a recorded case");
  return config;
}

/// The third step's events as engine_null.py writes them: bytes taken, or, below 0, the block that
/// was freed.
inline std::vector<int64_t> third_step(const planner::Timeline& timeline) {
  std::map<uint64_t, int64_t> blocks;
  std::vector<int64_t> asked;
  int64_t step = -1, taken = 0;
  for (const profiler::Event& event : timeline.events()) {
    if (event.kind == profiler::EventKind::step) step = event.value;
    if (event.space != profiler::Space::device) continue;
    if (event.kind == profiler::EventKind::alloc) {
      blocks[event.address] = ++taken;
      if (step == 2) asked.push_back(event.value);
    } else if (event.kind == profiler::EventKind::free && step == 2) {
      asked.push_back(-blocks.at(event.address));
    }
  }
  return asked;
}

}  // namespace detail

inline EngineCase engine_case(const nlohmann::json& row, const std::string& gpu) {
  EngineCase made{.config = detail::config_of(row, gpu), .options = {}, .row = row.dump()};
  made.options = planner::read_pytorch_words(row.at("writing").get<std::string>());
  made.options.rank = row.at("rank");
  made.options.torch = &models::torch_rules(row.at("torch").get<std::string>());
  made.options.gpu = &find_gpu(gpu);
  made.options.allocator.capacity_bytes = made.options.gpu->memory_bytes;
  // Older rows are of a null device that put each new segment above all earlier ones.
  if (row.value("segments", "rising") == "rising") {
    made.options.allocator.segment_order = planner::SegmentOrder::rising;
  }
  made.options.own_groups = row.at("variant") == "own-groups";
  made.options.loop = detail::loop_of(row.at("loop"));
  made.options.zero_grad = detail::zero_grad_of(row.at("zero_grad"));
  made.options.forward_prefetch = row.at("forward_prefetch");
  made.options.backward_prefetch = row.at("backward_prefetch");
  made.drawn = row.at("drawn");
  if (row.contains("peak")) made.measured = {row.at("peak").at(0), row.at("peak").at(1)};
  return made;
}

/// The peak from the third step on; empty if the GPU is too small.
inline std::optional<planner::SimulatedPeak> predicted_peak(const EngineCase& engine_case) {
  const models::ModelSpec spec = models::find_spec(engine_case.config.model);
  planner::PytorchSimulation simulation(spec, engine_case.config, engine_case.options);
  try {
    simulation.run();
  } catch (const planner::DeviceFull&) {
    return std::nullopt;
  }
  return simulation.step_peak();
}

/// The third step's requests to the allocator.
inline std::vector<int64_t> predicted_events(const EngineCase& engine_case) {
  const models::ModelSpec spec = models::find_spec(engine_case.config.model);
  planner::PytorchSimulation simulation(spec, engine_case.config, engine_case.options);
  simulation.run();
  return detail::third_step(simulation.timeline());
}

}  // namespace shardlens::tests
