#include "planner/schedule/layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "base/units.h"
#include "planner/schedule/name_pattern.h"
#include "planner/schedule/wrap.h"

namespace shardlens::planner {
namespace {

/// The properties that all parameters of one bucket share.
struct BucketClass {
  DType dtype{};
  bool whole = false;
  bool frozen = false;

  bool operator==(const BucketClass&) const = default;
};

/// Finds a parameter's properties from the options that select parameters by name.
class Classes {
 public:
  Classes(const models::ModelSpec& spec, const Strategy& strategy)
      : dtype_(strategy.param_dtype),
        whole_(pattern(spec, "--ignore ", strategy.ignore)),
        frozen_(pattern(spec, "--freeze ", strategy.freeze)),
        fp32_(pattern(spec, "--keep-fp32 ", strategy.keep_fp32)) {}

  BucketClass bucket_class_of(const models::ParameterSpec& parameter) const {
    return {matches(fp32_, parameter) ? DType::fp32 : dtype_, matches(whole_, parameter),
            matches(frozen_, parameter)};
  }

 private:
  using Pattern = std::optional<NamePattern>;

  static Pattern pattern(const models::ModelSpec& spec, const std::string& option,
                         const std::string& expression) {
    if (expression.empty()) return std::nullopt;
    NamePattern made(option, expression);
    made.expect_matches(spec);
    return made;
  }
  static bool matches(const Pattern& pattern, const models::ParameterSpec& parameter) {
    return pattern && !pattern->match(parameter.name).empty();
  }

  DType dtype_;
  Pattern whole_;
  Pattern frozen_;
  Pattern fp32_;
};

/// A group before it is cut into buckets: its parameters in the order in which backward reaches
/// them.
struct UncutGroup {
  std::string name;
  std::vector<int> parameters;
};

int64_t aligned_numel(const models::ParameterSpec& parameter) {
  return round_up(parameter.numel(), kAlignment);
}

/// Returns the order of backward: the modules of forward in falling order, and the parameters of
/// one module as they are. So a matrix comes before its bias: their gradients come together, and
/// the larger one should find its bucket begun.
std::vector<int> backward_order(const models::ModelSpec& spec, const std::vector<int>& forward) {
  const auto module_of = [&](int parameter) {
    const std::string& name = parameter_of(spec, parameter).name;
    return std::string_view(name).substr(0, name.rfind('.'));
  };
  std::vector<int> order(forward.rbegin(), forward.rend());
  for (auto begin = order.begin(); begin != order.end();) {
    const auto end = std::find_if(begin, order.end(), [&](int parameter) {
      return module_of(parameter) != module_of(*begin);
    });
    std::reverse(begin, end);
    begin = end;
  }
  return order;
}

/// Groups the parameters, in order of first use. Walks forward and reverses the result, so that the
/// first use of a parameter decides its place.
std::vector<UncutGroup> place_parameters(const models::ModelSpec& spec,
                                         const std::vector<std::string>& names) {
  std::vector<UncutGroup> groups;
  std::vector<bool> placed(spec.parameters.size());
  for (size_t i = 0; i < spec.units.size(); ++i) {
    if (names[i].empty()) continue;
    auto group = std::find_if(groups.begin(), groups.end(),
                              [&](const UncutGroup& one) { return one.name == names[i]; });
    if (group == groups.end()) group = groups.insert(group, {names[i], {}});
    for (const int parameter : spec.units[i].parameters) {
      if (placed[static_cast<size_t>(parameter)]) continue;
      placed[static_cast<size_t>(parameter)] = true;
      group->parameters.push_back(parameter);
    }
  }
  for (size_t i = 0; i < placed.size(); ++i) {
    if (placed[i]) continue;
    throw std::invalid_argument(fmt::format(
        "model {}: parameter {} is used by no unit, so it has no place in a step; remove it",
        spec.name, spec.parameters[i].name));
  }
  for (UncutGroup& group : groups) group.parameters = backward_order(spec, group.parameters);
  return groups;
}

/// Returns a third of the model's largest block, so that two reduce slots take less than a block. A
/// model without blocks uses its largest group instead.
int64_t bucket_limit(const models::ModelSpec& spec) {
  std::map<std::string, int64_t> groups;
  for (const models::ParameterSpec& parameter : spec.parameters) {
    groups[parameter.group] += aligned_numel(parameter);
  }
  const std::vector<int> blocks = blocks_of_units(spec);
  int64_t largest_block = 0;
  for (size_t i = 0; i < blocks.size(); ++i) {
    if (blocks[i] < 0) continue;
    const models::ParameterSpec& first = parameter_of(spec, spec.units[i].parameters.front());
    largest_block = std::max(largest_block, groups[first.group]);
  }
  if (largest_block > 0) return largest_block / 3;
  int64_t largest = 0;
  for (const auto& [name, numel] : groups) largest = std::max(largest, numel);
  return largest / 3;
}

Group cut_into_buckets(const models::ModelSpec& spec, const UncutGroup& uncut,
                       const Classes& classes, int64_t limit) {
  Group group{uncut.name, {}};
  std::vector<std::pair<BucketClass, size_t>> open;  // the bucket of each class that takes more
  for (const int parameter : uncut.parameters) {
    const models::ParameterSpec& described = parameter_of(spec, parameter);
    const BucketClass its = classes.bucket_class_of(described);
    const int64_t numel = aligned_numel(described);
    auto found =
        std::find_if(open.begin(), open.end(), [&](const auto& one) { return one.first == its; });
    if (found == open.end()) found = open.insert(found, {its, group.buckets.size()});
    const bool is_new = found->second == group.buckets.size();
    if (is_new || group.buckets[found->second].numel + numel > limit) {
      found->second = group.buckets.size();
      group.buckets.push_back({its.dtype, {}, 0, its.whole, its.frozen});
    }
    Bucket& bucket = group.buckets[found->second];
    bucket.entries.push_back({parameter, bucket.numel, described.numel()});
    bucket.numel += numel;
  }
  return group;
}

/// Returns the buckets to which a unit's gradients go, in the order in which they come. A parameter
/// that other units use later in backward (a tied weight) may lie in the group's last bucket, and
/// come first here.
std::vector<int> buckets_of_unit(const models::ModelSpec& spec, const models::UnitSpec& unit,
                                 const Group& group) {
  const auto holds = [](const Bucket& bucket, int parameter) {
    return std::any_of(bucket.entries.begin(), bucket.entries.end(),
                       [&](const BucketEntry& entry) { return entry.parameter == parameter; });
  };
  std::vector<int> found;
  for (const int parameter : backward_order(spec, unit.parameters)) {
    const auto bucket =
        std::find_if(group.buckets.begin(), group.buckets.end(),
                     [&](const Bucket& bucket) { return holds(bucket, parameter); });
    check(bucket != group.buckets.end(), "a unit's parameter lies in no bucket of its group");
    const auto index = static_cast<int>(bucket - group.buckets.begin());
    const bool is_known = std::count(found.begin(), found.end(), index) > 0;
    if (!bucket->frozen && !is_known) found.push_back(index);
  }
  return found;
}

int index_of(const std::vector<Group>& groups, const std::string& name) {
  const auto found = std::find_if(groups.begin(), groups.end(),
                                  [&](const Group& group) { return group.name == name; });
  return found == groups.end() ? -1 : static_cast<int>(found - groups.begin());
}

int64_t largest_inner_group(const Layout& layout) {
  int64_t largest = 0;
  int64_t largest_inner = 0;
  for (int i = 0; i < static_cast<int>(layout.groups.size()); ++i) {
    const int64_t numel = layout.groups[static_cast<size_t>(i)].numel();
    largest = std::max(largest, numel);
    const bool is_end = i == layout.units.front().group || i == layout.units.back().group;
    if (!is_end) largest_inner = std::max(largest_inner, numel);
  }
  return largest_inner > 0 ? largest_inner : largest;
}

/// Throws std::logic_error unless each parameter lies in one bucket, and the parameters of a bucket
/// lie one after the other, each at a multiple of kAlignment. Masters, slots and checkpoints rely
/// on that.
void check_layout(const models::ModelSpec& spec, const Layout& layout, const Strategy& strategy) {
  std::vector<bool> placed(spec.parameters.size());
  for (const Group& group : layout.groups) {
    for (const Bucket& bucket : group.buckets) {
      int64_t end = 0;
      for (const BucketEntry& entry : bucket.entries) {
        const auto parameter = static_cast<size_t>(entry.parameter);
        check(!placed.at(parameter), "layout: a parameter lies in two buckets");
        placed[parameter] = true;
        check(entry.offset >= end && entry.offset % kAlignment == 0,
              "layout: two parameters of a bucket overlap, or one is not aligned");
        check(entry.numel == spec.parameters[parameter].numel(),
              "layout: a parameter has another size in its bucket");
        end = entry.offset + entry.numel;
      }
      const int shards = bucket.whole ? 1 : strategy.shards();
      check(end <= bucket.numel && bucket.numel % (shards * kAlignment) == 0,
            "layout: a bucket is too small, or does not divide among its ranks");
    }
  }
  check(std::ranges::count(placed, false) == 0, "layout: a parameter lies in no bucket");
  for (const UnitLayout& unit : layout.units) {
    check(unit.group < static_cast<int>(layout.groups.size()), "layout: a unit of no group");
    check(unit.group >= 0 || unit.buckets.empty(), "layout: a unit trains without a group");
  }
}

void expect_trainable(const models::ModelSpec& spec, const Layout& layout) {
  const bool any = std::any_of(layout.units.begin(), layout.units.end(),
                               [](const UnitLayout& unit) { return !unit.buckets.empty(); });
  if (any) return;
  throw std::invalid_argument(fmt::format(
      "--freeze: it takes every parameter of {}, so there is nothing to train; freeze fewer",
      spec.name));
}

}  // namespace

Layout make_layout(const models::ModelSpec& spec, const Strategy& strategy) {
  if (spec.units.empty()) {
    throw std::invalid_argument(
        fmt::format("model {}: it has no units, so there is nothing to train", spec.name));
  }
  const std::vector<std::string> names = wrap_units(spec, strategy.wrap);
  const std::vector<int> blocks = blocks_of_units(spec);
  const Classes classes(spec, strategy);
  const int64_t limit = bucket_limit(spec);

  Layout layout;
  for (const UncutGroup& uncut : place_parameters(spec, names)) {
    layout.groups.push_back(cut_into_buckets(spec, uncut, classes, limit));
    for (Bucket& bucket : layout.groups.back().buckets) {
      const int shards = bucket.whole ? 1 : strategy.shards();
      bucket.numel = round_up(bucket.numel, shards * kAlignment);
    }
  }
  for (size_t i = 0; i < spec.units.size(); ++i) {
    UnitLayout& unit = layout.units.emplace_back();
    unit.group = index_of(layout.groups, names[i]);
    unit.block = blocks[i];
    if (unit.group < 0) continue;
    unit.buckets =
        buckets_of_unit(spec, spec.units[i], layout.groups[static_cast<size_t>(unit.group)]);
  }
  layout.block_numel = largest_inner_group(layout);
  check_layout(spec, layout, strategy);
  expect_trainable(spec, layout);
  return layout;
}

}  // namespace shardlens::planner
