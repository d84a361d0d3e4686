// What a step is told beside its schedule, and where its parameters lie.
#pragma once

#include <optional>
#include <vector>

#include "models/spec.h"
#include "planner/schedule.h"
#include "planner/strategy.h"

namespace shardlens::step {

struct GradientScaleOptions {
  double clip_norm = 0;  // 0: no clipping
  planner::LossScale loss_scale;
};

struct StepOptions {
  GradientScaleOptions gradient_scale;
  std::optional<planner::DType> output_dtype;  // of the logits; empty: as computed
  /// The dtype of what units hand on, if some parameters have another dtype than the others.
  std::optional<planner::DType> compute_dtype;
  /// If true, a unit's floating-point input is cast to the dtype of its parameters, if they share
  /// one.
  bool cast_inputs = true;
};

/// Returns the options that a configuration asks for.
StepOptions step_options(const planner::Config& config);

/// Throws std::invalid_argument: no gradient came for these parameters of the unit.
[[noreturn]] void refuse_unused(const models::ModelSpec& spec, int unit,
                                const std::vector<int>& parameters);

/// Says where one parameter lies.
struct Place {
  int group = -1;
  int bucket = -1;
  planner::BucketEntry entry;
};

/// Returns the places of all parameters.
std::vector<Place> places_of(const planner::Schedule& schedule);

}  // namespace shardlens::step
