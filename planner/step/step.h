// Holds the options of a step besides its schedule, and says where its parameters are.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "models/spec.h"
#include "planner/config/loss_scale.h"
#include "planner/schedule/schedule.h"

namespace shardlens::planner {

struct GradientScaleOptions {
  double clip_norm = 0;  // 0: no clipping
  LossScale loss_scale;
};

struct StepOptions {
  GradientScaleOptions gradient_scale;
  std::optional<DType> output_dtype;  // of the logits; empty: as computed
  /// The dtype that units hand on, if some parameters have another dtype than the others.
  std::optional<DType> compute_dtype;
  /// If true, a unit's floating-point input is cast to the dtype of its parameters, if they share
  /// one.
  bool cast_inputs = true;
};

/// Returns the options that a configuration asks for.
StepOptions step_options(const Config& config);

/// Throws std::invalid_argument: no gradient came for these parameters of the unit.
[[noreturn]] void refuse_unused(const models::ModelSpec& spec, int unit,
                                const std::vector<int>& parameters);

/// Says where one parameter lies.
struct ParameterPlace {
  int group = -1;
  int bucket = -1;
  BucketEntry entry;
};

/// Returns the places of all parameters.
std::vector<ParameterPlace> places_of(const Schedule& schedule);

/// Describes a run of one parameter's elements that lies in a rank's state.
struct StateRange {
  int parameter = -1;
  int64_t begin = 0;  // element of the parameter
  int group = -1;
  int bucket = -1;
  int64_t shard_begin = 0;  // element of the bucket's masters and moments
  int64_t numel = 0;
};

/// Returns the part of the parameter at `place` that `rank` holds; numel is 0 if it holds none.
StateRange range_of(const Schedule& schedule, const ParameterPlace& place, int rank);

/// The number of steps that make what all later steps find: moments, workspaces, cached blocks.
constexpr int64_t kFirstSteps = 2;

}  // namespace shardlens::planner
