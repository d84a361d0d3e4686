#include "profiler/compare/diff.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <stdexcept>
#include <tuple>
#include <utility>

#include "profiler/compare/origin.h"
#include "profiler/program/pulled_levers.h"
#include "profiler/recording/profile.h"

namespace shardlens::profiler {

namespace {

/// Returns the blocks that are alive at a peak, by label, action and category.
std::vector<Holding> holdings_of(const std::vector<NamedAllocation>& tensors) {
  std::map<std::tuple<Category, std::string, std::string>, Holding> holdings;
  for (const NamedAllocation& tensor : tensors) {
    const std::string action = short_action(tensor.action_id, tensor.action);
    Holding& holding = holdings[{tensor.category, tensor.label, action}];
    if (holding.sizes.empty()) {
      holding = {.category = tensor.category, .label = tensor.label, .action = action, .sizes = {}};
    }
    holding.sizes.push_back(tensor.given_bytes);
  }
  std::vector<Holding> list;
  for (auto& [key, holding] : holdings) list.push_back(std::move(holding));
  return list;
}

Side side_of(const RankReport& report) {
  Side side{.rank = report.header.rank,
            .world_size = report.header.world_size,
            .device = report.header.device,
            .gpu = report.header.gpu,
            .capacity_bytes = report.header.capacity_bytes,
            .steps = std::ssize(report.steps),
            .first_step = 0,
            .last_step = 0,
            .ran_out_of_memory = report.out_of_memory_count > 0,
            .has_shards = has_shards(report.header),
            .levers = pulled_levers_text(report.header.config),
            .judgement = report.judgement,
            .bands = report.bands};
  if (report.steps.empty()) return side;
  const auto [first, last] = std::ranges::minmax(report.steps, {}, &StepPeak::step);
  side.first_step = first.step;
  side.last_step = last.step;
  return side;
}

std::vector<StepDiff> common_steps(const RankReport& a, const RankReport& b) {
  // A resumed run may record a step twice; the later record counts.
  std::map<int64_t, int64_t> peaks;
  for (const StepPeak& step : a.steps) {
    peaks[step.step] = step.bytes[static_cast<size_t>(a.main)];
  }
  std::map<int64_t, Pair> pairs;
  for (const StepPeak& step : b.steps) {
    const auto found = peaks.find(step.step);
    if (found == peaks.end()) continue;
    pairs[step.step] = {.a_bytes = found->second,
                        .b_bytes = step.bytes[static_cast<size_t>(b.main)]};
  }
  std::vector<StepDiff> steps;
  for (const auto& [step, pair] : pairs) steps.push_back({.step = step, .peak = pair});
  return steps;
}

}  // namespace

std::string_view RankDiff::name_of(Category category) const {
  return category_name(category, a.has_shards || b.has_shards);
}

double Pair::growth_percent() const {
  if (growth_bytes() == 0) return 0;
  if (a_bytes == 0) return std::numeric_limits<double>::infinity();
  return 100 * static_cast<double>(growth_bytes()) / static_cast<double>(a_bytes);
}

std::string growth_percent_text(double percent, int decimals) {
  return std::isinf(percent) ? "from nothing" : fmt::format("{:+.{}f} %", percent, decimals);
}

double RankDiff::growth_percent() const { return peak.growth_percent(); }

bool RankDiff::compares_replays() const {
  const bool depends = a.bands && b.bands && a.bands->orders > 1;
  return depends && a.is_on_gpu() && b.is_on_gpu();
}

double RankDiff::gated_allocated_percent() const {
  if (!compares_replays()) return growth_percent();
  return Pair{a.bands->allocated.falling_bytes, b.bands->allocated.falling_bytes}.growth_percent();
}

double RankDiff::gated_reserved_percent() const {
  if (!reserved) return -std::numeric_limits<double>::infinity();
  if (!compares_replays()) return reserved->growth_percent();
  return Pair{a.bands->reserved.falling_bytes, b.bands->reserved.falling_bytes}.growth_percent();
}

double RankDiff::gated_growth_percent() const {
  return std::max(gated_allocated_percent(), gated_reserved_percent());
}

const RankDiff& RunDiff::worst_pair() const {
  return *std::ranges::max_element(ranks, {}, &RankDiff::growth_percent);
}

const RankDiff& RunDiff::worst_gated_pair() const {
  return *std::ranges::max_element(ranks, {}, &RankDiff::gated_growth_percent);
}

RankDiff diff_ranks(const RankReport& a, const RankReport& b) {
  static const SpaceReport nothing;
  const SpaceReport& in_a = a.main_space() == nullptr ? nothing : *a.main_space();
  const SpaceReport& in_b = b.main_space() == nullptr ? nothing : *b.main_space();
  RankDiff diff;
  diff.a = side_of(a);
  diff.b = side_of(b);
  diff.peak = {in_a.peak_bytes, in_b.peak_bytes};
  if (a.reserved_peak_bytes() && b.reserved_peak_bytes()) {
    diff.reserved = Pair{*a.reserved_peak_bytes(), *b.reserved_peak_bytes()};
  }
  for (size_t i = 0; i < kCategories; ++i) diff.categories[i] = {in_a.given[i], in_b.given[i]};
  for (size_t i = 0; i < kPhases; ++i) {
    if (!in_a.phase_peaks[i] && !in_b.phase_peaks[i]) continue;
    diff.phases[i] = Pair{in_a.phase_peaks[i].value_or(0), in_b.phase_peaks[i].value_or(0)};
  }
  diff.steps = common_steps(a, b);
  diff.at_peak = match(holdings_of(in_a.tensors), holdings_of(in_b.tensors), a.program, b.program);
  return diff;
}

RunDiff diff_runs(const std::vector<RankReport>& a, const std::vector<RankReport>& b) {
  RunDiff diff;
  if (a.size() == 1 && b.size() == 1) {
    diff.ranks.push_back(diff_ranks(a.front(), b.front()));
    return diff;
  }
  const auto rank_of = [](const RankReport& report) { return report.header.rank; };
  for (const RankReport& report : a) {
    const auto partner = std::ranges::find(b, report.header.rank, rank_of);
    if (partner == b.end()) {
      diff.only_a.push_back(report.header.rank);
    } else {
      diff.ranks.push_back(diff_ranks(report, *partner));
    }
  }
  for (const RankReport& report : b) {
    if (std::ranges::find(a, report.header.rank, rank_of) == a.end()) {
      diff.only_b.push_back(report.header.rank);
    }
  }
  if (diff.ranks.empty()) {
    throw std::invalid_argument(
        "the two runs have no rank in common; name one file of each to compare two ranks");
  }
  return diff;
}

}  // namespace shardlens::profiler
