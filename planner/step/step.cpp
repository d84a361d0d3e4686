#include "planner/step/step.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <stdexcept>
#include <string_view>

#include "base/check.h"

namespace shardlens::planner {

StepOptions step_options(const Config& config) {
  StepOptions options{
      .gradient_scale = {.clip_norm = config.clip_norm, .loss_scale = loss_scale_of(config)},
      .output_dtype = output_dtype_of(config),
      .compute_dtype = std::nullopt,
      .cast_inputs = config.cast_inputs};
  if (!config.keep_fp32.empty()) options.compute_dtype = strategy_of(config).param_dtype;
  return options;
}

void refuse_unused(const models::ModelSpec& spec, int unit, const std::vector<int>& parameters) {
  std::vector<std::string_view> names;
  for (const int parameter : parameters) names.push_back(spec.parameters[parameter].name);
  throw std::invalid_argument(fmt::format(
      "unit {}: no gradient came for {}, so its forward does not use it; leave it out of the unit, "
      "or give --freeze '{}'",
      spec.units[unit].name, fmt::join(names, ", "), fmt::join(names, "|")));
}

std::vector<ParameterPlace> places_of(const Schedule& schedule) {
  std::vector<ParameterPlace> places;
  for (int group = 0; group < static_cast<int>(schedule.groups.size()); ++group) {
    const auto& buckets = schedule.groups[group].buckets;
    for (int bucket = 0; bucket < static_cast<int>(buckets.size()); ++bucket) {
      for (const BucketEntry& entry : buckets[bucket].entries) {
        check(entry.parameter >= 0, "a bucket holds something that is not a parameter");
        places.resize(std::max<size_t>(places.size(), entry.parameter + 1));
        places[entry.parameter] = {group, bucket, entry};
      }
    }
  }
  return places;
}

StateRange range_of(const Schedule& schedule, const ParameterPlace& place, int rank) {
  const Bucket& bucket = schedule.groups[place.group].buckets[place.bucket];
  check(rank >= 0 && rank < schedule.world_size, "a range is asked for of no rank");
  const int64_t own_numel = schedule.shard_numel(bucket);
  const int64_t own_begin = rank % schedule.shards_of(bucket) * own_numel;
  const auto& [parameter, offset, numel] = place.entry;
  const int64_t begin = std::max(offset, own_begin);
  const int64_t end = std::min(offset + numel, own_begin + own_numel);
  if (begin >= end) return {};
  check(end <= bucket.numel, "a parameter reaches past its bucket");
  return {parameter, begin - offset, place.group, place.bucket, begin - own_begin, end - begin};
}

}  // namespace shardlens::planner
