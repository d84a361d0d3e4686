#include "models/torch_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <stdexcept>

#include "base/shown.h"

namespace shardlens::models {

namespace {

using enum BlasWorkspaces;

constexpr TorchRules kTorch2_11{
    .version = "2.11",
    .blas_workspaces = separate,
    .large_blackwell_workspace = false,
    .free_block_order = FreeBlockOrder::address,
    .rounds_memory_fraction = false,
    .sorts_used_digits = false,
    .unique_tiles = {.a100 = 1792, .hopper = 4480, .blackwell = 3840},
    .efficient_takes_groups = false,
    .efficient_keeps_seed = false,
};

/// Returns the rules of the version before, with the changes since.
constexpr TorchRules next_rules(TorchRules rules, std::string_view version, auto change) {
  rules.version = version;
  change(rules);
  return rules;
}

constexpr TorchRules kTorch2_12 = next_rules(kTorch2_11, "2.12", [](TorchRules& rules) {
  rules.blas_workspaces = shared;
  rules.large_blackwell_workspace = true;
  rules.free_block_order = FreeBlockOrder::block_age;
});

constexpr TorchRules kTorch2_13 = next_rules(kTorch2_12, "2.13", [](TorchRules& rules) {
  rules.free_block_order = FreeBlockOrder::segment_age;
  rules.rounds_memory_fraction = true;
  rules.sorts_used_digits = true;
  rules.unique_tiles = {.a100 = 1344, .hopper = 4928, .blackwell = 4928};
});

constexpr TorchRules kTorch2_14 = next_rules(kTorch2_13, "2.14", [](TorchRules& rules) {
  rules.efficient_takes_groups = true;
  rules.efficient_keeps_seed = true;
});

constexpr TorchRules kTorch2_15 =
    next_rules(kTorch2_14, "2.15", [](TorchRules& rules) { rules.blas_workspaces = by_product; });

constexpr std::array kRows = {kTorch2_11, kTorch2_12, kTorch2_13, kTorch2_14, kTorch2_15};

/// Returns the minor version, 9 for "2.9.1"; 0 for a text that is not a version of PyTorch 2.
int minor_number_of(std::string_view version) {
  constexpr std::string_view kMajor = "2.";
  int number = 0;
  if (!version.starts_with(kMajor)) return 0;
  version.remove_prefix(kMajor.size());
  std::from_chars(version.data(), version.data() + version.size(), number);
  return number;
}

/// True if `version` is a release of `minor`: "2.15" is that of "2.15", "2.15.0+cu132" and
/// "2.15.0a0+git1234567", not of "2.150".
bool is_minor_version_of(std::string_view minor, std::string_view version) {
  return version.starts_with(minor) &&
         (version.size() == minor.size() || version[minor.size()] == '.');
}

}  // namespace

std::span<const TorchRules> torch_rules() { return kRows; }

const TorchRules* find_torch_rules(std::string_view version) {
  const auto row = std::ranges::find_if(
      kRows, [&](const TorchRules& rules) { return is_minor_version_of(rules.version, version); });
  return row == kRows.end() ? nullptr : &*row;
}

const TorchRules& torch_rules(std::string_view version) {
  if (const TorchRules* const rules = find_torch_rules(version)) return *rules;
  throw std::invalid_argument(
      fmt::format("PyTorch {}: its rules are not known; give {} to {}, or use shardlens record",
                  shown(version), kRows.front().version, kRows.back().version));
}

const TorchRules& nearest_torch_rules(std::string_view version) {
  const auto distance = [&](const TorchRules& rules) {
    return std::abs(minor_number_of(rules.version) - minor_number_of(version));
  };
  return *std::ranges::min_element(kRows, {}, distance);
}

const TorchRules& own_torch_rules() {
  static const TorchRules& rules = nearest_torch_rules(SHARDLENS_TORCH_VERSION);
  return rules;
}

}  // namespace shardlens::models
