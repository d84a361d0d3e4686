#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/shown.h"
#include "base/strict_json.h"
#include "base/units.h"
#include "profiler/compare/comparability.h"
#include "profiler/compare/diff.h"
#include "profiler/compare/matching_json.h"
#include "profiler/report/judgement_json.h"

namespace shardlens::profiler {

namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kChangedRows = 10;
constexpr size_t kVerdictCategories = 3;

std::string signed_text(int64_t bytes) { return (bytes > 0 ? "+" : "") + bytes_text(bytes); }

/// Returns the categories that differ, the greatest change first.
std::vector<size_t> changed_categories(const RankDiff& diff) {
  std::vector<size_t> order;
  for (size_t i = 0; i < kCategories; ++i) {
    if (diff.categories[i].growth_bytes() != 0) order.push_back(i);
  }
  std::ranges::stable_sort(order, std::greater(),
                           [&](size_t i) { return std::abs(diff.categories[i].growth_bytes()); });
  return order;
}

std::string pair_row(std::string_view name, const Pair& pair) {
  return fmt::format("  {:<22} {:>12} {:>12} {:>13}\n", name, bytes_text(pair.a_bytes),
                     bytes_text(pair.b_bytes), signed_text(pair.growth_bytes()));
}

/// Returns what is alive in both, and a row for each place that differs, the largest first.
std::string changed_rows(const RankDiff& diff) {
  const Matching& matching = diff.at_peak;
  std::string text =
      fmt::format("\n  alive at the peaks: {} in both, {} only in A, {} only in B\n",
                  bytes_text(matching.in_both_bytes), bytes_text(matching.only_a_bytes),
                  bytes_text(matching.only_b_bytes));
  size_t rows = 0;
  int64_t left_bytes = 0;
  for (const MatchedPlace& row : matching.rows) {
    if (row.changed_bytes() == 0) continue;
    if (++rows > kChangedRows) {
      left_bytes += row.changed_bytes();
      continue;
    }
    text += fmt::format("  {:>13}  {:<19} {}: {}\n", signed_text(row.growth_bytes()),
                        diff.name_of(row.category), shown(row.name), holding_text(row));
  }
  if (rows <= kChangedRows) return text;
  return text +
         fmt::format("  and {} in {} more places\n", bytes_text(left_bytes), rows - kChangedRows);
}

std::string step_diff_rows(const std::vector<StepDiff>& steps) {
  if (steps.empty()) return "  the two have no step in common\n";
  const auto differ =
      std::ranges::count_if(steps, [](const StepDiff& s) { return s.peak.growth_bytes() != 0; });
  const StepDiff& most = *std::ranges::max_element(
      steps, {}, [](const StepDiff& s) { return std::abs(s.peak.growth_bytes()); });
  std::string text = fmt::format("  {} of {} steps differ\n", differ, steps.size());
  if (differ > 0) text += pair_row(fmt::format("most in step {}", most.step), most.peak);
  return text;
}

/// Returns the levers of each side; nothing if neither was recorded with any.
std::string levers_rows(const RankDiff& diff) {
  if (diff.a.levers.empty() && diff.b.levers.empty()) return {};
  const auto line = [](char name, const Side& side) {
    const bool is_as_it_is = side.levers.empty();
    return fmt::format("  {} was recorded {}\n", name,
                       is_as_it_is ? "as the program is" : "with " + shown(side.levers));
  };
  return line('A', diff.a) + line('B', diff.b);
}

std::string rank_diff_text(const RankDiff& diff) {
  std::string text = fmt::format("  {:<22} {:>12} {:>12} {:>13}\n", "", "A", "B", "B - A");
  text += pair_row("peak", diff.peak);
  if (diff.reserved) text += pair_row("reserved", *diff.reserved);
  for (size_t i = 0; i < kCategories; ++i) {
    const Pair& pair = diff.categories[i];
    if (pair.a_bytes != 0 || pair.b_bytes != 0) {
      text += pair_row("  " + std::string(diff.name_of(static_cast<Category>(i))), pair);
    }
  }
  for (size_t i = 0; i < kPhases; ++i) {
    if (diff.phases[i]) text += pair_row(kWords<Phase>[i], *diff.phases[i]);
  }
  return text + step_diff_rows(diff.steps) + changed_rows(diff);
}

Json pair_json(const Pair& pair) {
  return {
      {"a_bytes", pair.a_bytes}, {"b_bytes", pair.b_bytes}, {"growth_bytes", pair.growth_bytes()}};
}

Json obstacles_json(const RunDiff& diff) {
  Json json = Json::array();
  for (const FoundObstacle& finding : obstacles_between(diff)) {
    json.push_back({{"allow", info_of(finding.obstacle).word}, {"text", finding.text}});
  }
  return json;
}

Json rank_diff_json(const RankDiff& diff) {
  Json json = {{"a_rank", diff.a.rank},
               {"b_rank", diff.b.rank},
               {"a_judgement", judgement_json(diff.a.judgement)},
               {"b_judgement", judgement_json(diff.b.judgement)},
               {"a_levers", diff.a.levers},
               {"b_levers", diff.b.levers},
               {"peak", pair_json(diff.peak)}};
  // JSON has no infinity.
  const double percent = diff.growth_percent();
  json["growth_percent"] = std::isinf(percent) ? Json(nullptr) : Json(percent);
  json["reserved"] = diff.reserved ? pair_json(*diff.reserved) : Json(nullptr);
  json["categories"] = Json::object();
  for (size_t i = 0; i < kCategories; ++i) {
    json["categories"][std::string(kWords<Category>[i])] = pair_json(diff.categories[i]);
  }
  json["phases"] = Json::object();
  for (size_t i = 0; i < kPhases; ++i) {
    if (diff.phases[i]) json["phases"][std::string(kWords<Phase>[i])] = pair_json(*diff.phases[i]);
  }
  json["steps"] = Json::array();
  for (const StepDiff& step : diff.steps) {
    Json one = pair_json(step.peak);
    one["step"] = step.step;
    json["steps"].push_back(std::move(one));
  }
  json["comparison"] = matching_json(diff.at_peak, "a", "b");
  json["verdict"] = verdict(diff);
  return json;
}

}  // namespace

std::string verdict(const RankDiff& diff) {
  const int64_t growth = diff.peak.growth_bytes();
  const std::vector<size_t> order = changed_categories(diff);
  if (growth == 0 && order.empty()) {
    return fmt::format("the peaks are equal, {}", bytes_text(diff.peak.a_bytes));
  }
  std::string text = growth == 0
                         ? fmt::format("the peaks are equal, {}, but their contents differ",
                                       bytes_text(diff.peak.a_bytes))
                         : fmt::format("B's peak is {} {} A's ({})", bytes_text(std::abs(growth)),
                                       growth > 0 ? "above" : "below",
                                       growth_percent_text(diff.growth_percent(), 1));
  for (size_t i = 0; i < std::min(kVerdictCategories, order.size()); ++i) {
    text += fmt::format("{} {} {}", i == 0 ? ":" : ",",
                        signed_text(diff.categories[order[i]].growth_bytes()),
                        diff.name_of(static_cast<Category>(order[i])));
  }
  return text;
}

std::string diff_text(const RunDiff& diff) {
  const RankDiff& worst = diff.worst_pair();
  const auto names = [](const RankDiff& rank) {
    return rank.a.rank == rank.b.rank ? fmt::format("rank {}", rank.a.rank)
                                      : fmt::format("ranks {} and {}", rank.a.rank, rank.b.rank);
  };
  std::string text = fmt::format("{}: {}\n", names(worst), verdict(worst));
  text += levers_rows(worst);
  for (const FoundObstacle& finding : obstacles_between(diff)) {
    text += fmt::format("  not comparable: {} ({})\n", finding.text, info_of(finding.obstacle).why);
  }
  text += rank_diff_text(worst);
  for (const RankDiff& rank : diff.ranks) {
    if (&rank != &worst) text += fmt::format("{}: {}\n", names(rank), verdict(rank));
  }
  return text;
}

std::string diff_json(const RunDiff& diff) {
  Json json = {{"schema", "shardlens.profile_diff/2"},
               {"verdict", verdict(diff.worst_pair())},
               {"ranks", Json::array()},
               {"only_a", diff.only_a},
               {"only_b", diff.only_b},
               {"obstacles", obstacles_json(diff)}};
  for (const RankDiff& rank : diff.ranks) json["ranks"].push_back(rank_diff_json(rank));
  return json_text(json);
}

}  // namespace shardlens::profiler
