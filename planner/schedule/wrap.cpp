#include "planner/schedule/wrap.h"

#include <algorithm>
#include <map>
#include <stdexcept>

#include "planner/schedule/name_pattern.h"

namespace shardlens::planner {
namespace {

using models::ModelSpec;
using models::ParameterSpec;
using models::UnitSpec;

/// Returns by unit the parameters that no earlier unit uses.
std::vector<std::vector<int>> own_parameters(const ModelSpec& spec) {
  std::vector<bool> seen(spec.parameters.size());
  std::vector<std::vector<int>> own;
  for (const UnitSpec& unit : spec.units) {
    std::vector<int>& list = own.emplace_back();
    for (const int parameter : unit.parameters) {
      if (!seen[static_cast<size_t>(parameter)]) list.push_back(parameter);
      seen[static_cast<size_t>(parameter)] = true;
    }
  }
  return own;
}

/// Returns by unit the name of the model's own group.
std::vector<std::string> groups_by_block(const ModelSpec& spec) {
  const auto own = own_parameters(spec);
  std::vector<std::string> names;
  for (size_t i = 0; i < own.size(); ++i) {
    const std::vector<int>& all = spec.units[i].parameters;
    const std::vector<int>& list = own[i].empty() ? all : own[i];
    names.push_back(list.empty() ? "" : parameter_of(spec, list.front()).group);
  }
  return names;
}

/// Joins runs of units until they have `numel` elements; the first and the last unit keep their own
/// groups.
std::vector<std::string> groups_by_size(const ModelSpec& spec, int64_t numel) {
  const auto own = own_parameters(spec);
  std::vector<std::string> names = groups_by_block(spec);
  size_t begin = 1;
  int64_t sum = 0;
  for (size_t i = 1; i + 1 < own.size(); ++i) {
    for (const int parameter : own[i]) sum += parameter_of(spec, parameter).numel();
    if (sum < numel && i + 2 < own.size()) continue;
    const std::string& first = spec.units[begin].name;
    const std::string name = begin == i ? first : first + "-" + spec.units[i].name;
    for (size_t k = begin; k <= i; ++k) {
      if (!names[k].empty()) names[k] = name;
    }
    begin = i + 1;
    sum = 0;
  }
  return names;
}

/// Groups each unit by the first of its modules that matches. Units without one form the group
/// "rest", except the first and the last unit, which keep their own group.
std::vector<std::string> groups_by_module(const ModelSpec& spec, const std::string& expression) {
  const NamePattern pattern("--wrap module:", expression);
  pattern.expect_matches(spec);
  std::vector<std::string> names = groups_by_block(spec);
  for (size_t i = 0; i < names.size(); ++i) {
    if (names[i].empty()) continue;
    const bool is_end = i == 0 || i + 1 == names.size();
    std::string matched;
    for (const int parameter : spec.units[i].parameters) {
      if (matched.empty()) matched = pattern.match(parameter_of(spec, parameter).name);
    }
    if (!matched.empty()) names[i] = matched;
    if (matched.empty() && !is_end) names[i] = "rest";
  }
  return names;
}

std::vector<std::string> groups_by_policy(const ModelSpec& spec, const Wrap& wrap) {
  switch (wrap.kind) {
    case WrapKind::block:
      return groups_by_block(spec);
    case WrapKind::size:
      return groups_by_size(spec, wrap.numel);
    case WrapKind::module:
      return groups_by_module(spec, wrap.module);
    case WrapKind::root:
      break;
  }
  std::vector<std::string> names;
  for (const UnitSpec& unit : spec.units) names.push_back(unit.parameters.empty() ? "" : "root");
  return names;
}

/// Gives all units of two groups the name of the earlier one if they share a parameter.
void merge_tied(const ModelSpec& spec, std::vector<std::string>& names) {
  std::map<int, size_t> first_unit;  // by parameter
  for (size_t i = 0; i < names.size(); ++i) {
    for (const int parameter : spec.units[i].parameters) {
      const std::string kept = names[first_unit.try_emplace(parameter, i).first->second];
      const std::string merged = names[i];
      if (kept != merged) std::replace(names.begin(), names.end(), merged, kept);
    }
  }
}

}  // namespace

const ParameterSpec& parameter_of(const ModelSpec& spec, int index) {
  return spec.parameters.at(static_cast<size_t>(index));
}

std::vector<std::string> wrap_units(const ModelSpec& spec, const Wrap& wrap) {
  std::vector<std::string> names = groups_by_policy(spec, wrap);
  merge_tied(spec, names);
  return names;
}

std::vector<int> blocks_of_units(const ModelSpec& spec) {
  const std::vector<std::string> names = groups_by_block(spec);
  std::vector<int> blocks(names.size(), -1);
  int last = -1;
  for (size_t i = 0; i < names.size(); ++i) {
    if (names[i].empty() || names[i] == names.front() || names[i] == names.back()) continue;
    blocks[i] = i > 0 && names[i] == names[i - 1] ? last : ++last;
  }
  return blocks;
}

}  // namespace shardlens::planner
