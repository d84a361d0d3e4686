#include "planner/layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <string>

namespace shardlens::planner {
namespace {

/// A group before it is cut: its parameters in falling order of use.
struct UncutGroup {
  std::string name;
  std::vector<int> parameters;
  int64_t numel = 0;  // with alignment, without padding to shards
};

int64_t aligned_numel(const models::ParameterSpec& parameter) {
  return round_up(parameter.numel(), kAlignment);
}

const models::ParameterSpec& parameter_of(const models::ModelSpec& spec, int index) {
  return spec.parameters.at(static_cast<size_t>(index));
}

int index_of(const std::vector<UncutGroup>& groups, const std::string& name) {
  const auto found = std::find_if(groups.begin(), groups.end(),
                                  [&](const UncutGroup& group) { return group.name == name; });
  return found == groups.end() ? -1 : static_cast<int>(found - groups.begin());
}

std::vector<UncutGroup> groups_in_order_of_use(const models::ModelSpec& spec) {
  std::vector<UncutGroup> groups;
  for (const models::UnitSpec& unit : spec.units) {
    for (const int parameter : unit.parameters) {
      const std::string& name = parameter_of(spec, parameter).group;
      if (index_of(groups, name) < 0) groups.push_back({name, {}, 0});
    }
  }
  return groups;
}

/// Walks forward and reverses at the end, so that the first use of a parameter decides its place.
void place_parameters(const models::ModelSpec& spec, std::vector<UncutGroup>& groups) {
  std::vector<bool> placed(spec.parameters.size());
  for (const models::UnitSpec& unit : spec.units) {
    for (const int parameter : unit.parameters) {
      if (placed[static_cast<size_t>(parameter)]) continue;
      placed[static_cast<size_t>(parameter)] = true;
      const models::ParameterSpec& described = parameter_of(spec, parameter);
      UncutGroup& group = groups[static_cast<size_t>(index_of(groups, described.group))];
      group.parameters.push_back(parameter);
      group.numel += aligned_numel(described);
    }
  }
  for (size_t i = 0; i < placed.size(); ++i) {
    if (placed[i]) continue;
    throw std::invalid_argument(fmt::format(
        "model {}: parameter {} is used by no unit, so it has no place in a step; remove it",
        spec.name, spec.parameters[i].name));
  }
  for (UncutGroup& group : groups) std::reverse(group.parameters.begin(), group.parameters.end());
}

int group_of_unit(const models::ModelSpec& spec, const std::vector<UncutGroup>& groups,
                  const models::UnitSpec& unit) {
  int found = -1;
  for (const int parameter : unit.parameters) {
    const int group = index_of(groups, parameter_of(spec, parameter).group);
    if (found >= 0 && group != found) {
      throw std::invalid_argument(
          fmt::format("model {}: unit {} uses parameters of groups {} and {}, but a unit must keep "
                      "to one group; put them into one",
                      spec.name, unit.name, groups[static_cast<size_t>(found)].name,
                      groups[static_cast<size_t>(group)].name));
    }
    found = group;
  }
  return found;
}

/// The numel of the largest block: a group that neither the first nor the last unit uses. A model
/// without any has its largest group instead.
template <typename Groups, typename Numel>
int64_t largest_block(const Groups& groups, const std::vector<UnitLayout>& units, Numel numel) {
  int64_t largest = 0;
  int64_t largest_block = 0;
  for (int i = 0; i < static_cast<int>(groups.size()); ++i) {
    const int64_t size = numel(groups[static_cast<size_t>(i)]);
    largest = std::max(largest, size);
    const bool is_end = i == units.front().group || i == units.back().group;
    if (!is_end) largest_block = std::max(largest_block, size);
  }
  return largest_block > 0 ? largest_block : largest;
}

Group cut_into_buckets(const models::ModelSpec& spec, const UncutGroup& uncut, DType dtype,
                       int64_t limit) {
  Group group{uncut.name, {}};
  for (const int parameter : uncut.parameters) {
    const int64_t numel = aligned_numel(parameter_of(spec, parameter));
    if (group.buckets.empty() || group.buckets.back().numel + numel > limit) {
      group.buckets.push_back({dtype, {}, 0});
    }
    Bucket& bucket = group.buckets.back();
    bucket.entries.push_back({parameter, bucket.numel, parameter_of(spec, parameter).numel()});
    bucket.numel += numel;
  }
  return group;
}

std::vector<int> buckets_of_unit(const models::UnitSpec& unit, const Group& group) {
  std::vector<int> found;
  for (int i = 0; i < static_cast<int>(group.buckets.size()); ++i) {
    const std::vector<BucketEntry>& entries = group.buckets[static_cast<size_t>(i)].entries;
    const bool used = std::any_of(entries.begin(), entries.end(), [&](const BucketEntry& entry) {
      return std::count(unit.parameters.begin(), unit.parameters.end(), entry.parameter) > 0;
    });
    if (used) found.push_back(i);
  }
  return found;
}

}  // namespace

int64_t round_up(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

Layout make_layout(const models::ModelSpec& spec, int shards, DType dtype) {
  if (spec.units.empty()) {
    throw std::invalid_argument(
        fmt::format("model {}: it has no units, so there is nothing to train", spec.name));
  }
  std::vector<UncutGroup> uncut = groups_in_order_of_use(spec);
  place_parameters(spec, uncut);

  Layout layout;
  for (const models::UnitSpec& unit : spec.units) {
    layout.units.push_back({group_of_unit(spec, uncut, unit), {}});
  }
  const int64_t limit =
      largest_block(uncut, layout.units, [](const UncutGroup& group) { return group.numel; }) / 3;
  for (const UncutGroup& group : uncut) {
    layout.groups.push_back(cut_into_buckets(spec, group, dtype, limit));
    for (Bucket& bucket : layout.groups.back().buckets) {
      bucket.numel = round_up(bucket.numel, shards * kAlignment);
    }
  }
  for (size_t i = 0; i < layout.units.size(); ++i) {
    UnitLayout& unit = layout.units[i];
    if (unit.group < 0) continue;
    unit.buckets = buckets_of_unit(spec.units[i], layout.groups[static_cast<size_t>(unit.group)]);
  }
  layout.block_numel =
      largest_block(layout.groups, layout.units, [](const Group& group) { return group.numel(); });
  return layout;
}

}  // namespace shardlens::planner
