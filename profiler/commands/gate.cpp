#include "profiler/commands/gate.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <limits>
#include <stdexcept>
#include <string_view>

#include "base/output_file.h"
#include "base/process/command_line.h"
#include "base/shown.h"
#include "base/units.h"
#include "profiler/compare/address_doubts.h"
#include "profiler/compare/comparability.h"

namespace shardlens::profiler {

namespace {

constexpr size_t kChangedRows = 8;
constexpr std::string_view kDefaultLimit = "2%";

constexpr std::string_view kUsage =
    "usage: shardlens gate BASE NEW [--fail-above P%] [--markdown FILE] [--allow WORD,...]\n"
    "                      [--fail-on growth]\n\n"
    "Compares the peaks of two runs or recordings, such as `shardlens record` makes, rank by "
    "rank.\n"
    "Exit code 1: a peak, allocated or reserved, grew by more than P percent (2); with --fail-on\n"
    "growth also if the new run grows from step to step.\n"
    "Exit code 2: the two were not compared, since something else differs or is missing. --allow\n"
    "names what to ignore: damaged, growing, killed, newer, lost, out-of-memory, ranks, world,\n"
    "device, steps.\n";

std::string percent_text(double percent) { return growth_percent_text(percent, 2); }

/// Returns the doubts about the answer of the gate, as sentences without an end.
std::vector<std::string> doubts_about(const RunDiff& diff, double limit_percent) {
  std::vector<std::string> doubts;
  for (const RankDiff& rank : diff.ranks) {
    for (const std::string& doubt : address_doubts(rank, limit_percent)) {
      doubts.push_back("in doubt: " + doubt);
    }
  }
  return doubts;
}

std::string headline(const RunDiff& diff, double limit_percent) {
  const RankDiff& worst = diff.worst_gated_pair();
  const double growth = worst.gated_growth_percent();
  const bool is_reserved = growth > worst.gated_allocated_percent();
  return fmt::format(
      "{} of rank {} {}: {}{}, the limit is {} %", is_reserved ? "reserved memory" : "the peak",
      worst.b.rank, growth > limit_percent ? "grew too much" : "is within the limit",
      percent_text(growth), worst.compares_replays() ? " with the same order of addresses" : "",
      limit_percent);
}

std::string markdown_row(std::string_view name, const Pair& pair) {
  return fmt::format("| {} | {} | {} | {} |\n", name, bytes_text(pair.a_bytes),
                     bytes_text(pair.b_bytes), percent_text(pair.growth_percent()));
}

/// Returns a table of the places that differ at the peaks, the greatest difference first.
std::string changed_places(const RankDiff& rank) {
  std::string rows;
  size_t count = 0;
  for (const MatchedPlace& row : rank.at_peak.rows) {
    if (row.changed_bytes() == 0 || count == kChangedRows) break;
    ++count;
    const int64_t growth = row.growth_bytes();
    rows += fmt::format("| {}{} | {} | `{}` | {} |\n", growth > 0 ? "+" : "", bytes_text(growth),
                        rank.name_of(row.category), shown(row.name), holding_text(row));
  }
  if (rows.empty()) return "";
  return "\n| change at the peak | for | allocated at | base -> new |\n|---:|---|---|---|\n" + rows;
}

/// Returns "; rank 3 grows by ..." for the first rank that grows, or nothing.
std::string growth_in(const std::vector<RankReport>& ranks) {
  const auto grows = [](const RankReport& rank) { return rank.growth.has_value(); };
  const auto found = std::ranges::find_if(ranks, grows);
  if (found == ranks.end()) return {};
  return fmt::format("; rank {} of the new run {}", found->header.rank,
                     growth_text(*found->growth));
}

std::vector<RankReport> analyse_side_by(
    const std::string& name, const std::function<RankReport(const std::string& path)>& analyse) {
  std::vector<RankReport> ranks;
  for (const std::string& file : recordings_of(name)) ranks.push_back(analyse(file));
  return ranks;
}

}  // namespace

std::string gate_markdown(const RunDiff& diff, double limit_percent) {
  const RankDiff& worst = diff.worst_gated_pair();
  std::string text = fmt::format("### GPU memory: {}\n\n", headline(diff, limit_percent));
  for (const FoundObstacle& finding : obstacles_between(diff)) {
    text += fmt::format("**Not comparable**: {} ({}).\n\n", finding.text,
                        info_of(finding.obstacle).why);
  }
  for (const std::string& doubt : doubts_about(diff, limit_percent)) text += doubt + ".\n\n";
  text += fmt::format("| rank {} | base | new | growth |\n|---|---:|---:|---:|\n", worst.b.rank);
  text += markdown_row("**peak allocated**", worst.peak);
  if (worst.reserved) text += markdown_row("**peak reserved**", *worst.reserved);
  for (size_t i = 0; i < kCategories; ++i) {
    const Pair& pair = worst.categories[i];
    if (pair.a_bytes != 0 || pair.b_bytes != 0) {
      text += markdown_row(worst.name_of(static_cast<Category>(i)), pair);
    }
  }
  for (const RankDiff& rank : diff.ranks) {
    if (&rank == &worst) continue;
    text += markdown_row(fmt::format("rank {}: peak allocated", rank.b.rank), rank.peak);
  }
  return text + changed_places(worst);
}

CommandOutcome gate_command(const std::vector<std::string>& arguments,
                            const std::function<RankReport(const std::string& path)>& analyse) {
  const auto asks_for_help = [](const std::string& word) {
    return word == "--help" || word == "-h";
  };
  if (std::ranges::any_of(arguments, asks_for_help)) {
    return {.out = std::string(kUsage), .error = {}};
  }
  CLI::App app;
  std::string base, fresh, markdown, fail_on, limit_text(kDefaultLimit);
  std::vector<std::string> allow;
  app.add_option("BASE", base)->required();
  app.add_option("NEW", fresh)->required();
  app.add_option("--fail-above", limit_text);
  app.add_option("--markdown", markdown);
  app.add_option("--fail-on", fail_on)->check(CLI::IsMember({"growth"}));
  app.add_option("--allow", allow)->delimiter(',')->expected(1)->take_all();
  parse_flags(app, arguments);
  const double limit = parse_percent("--fail-above", limit_text);
  const std::vector<Obstacle> allowed = parse_allowed(allow);
  const std::vector<RankReport> new_ranks = analyse_side_by(fresh, analyse);
  const RunDiff diff = diff_runs(analyse_side_by(base, analyse), new_ranks);
  const std::vector<FoundObstacle> found = obstacles_between(diff);
  const std::vector<FoundObstacle> refused = remove_allowed(found, allowed);
  if (!refused.empty()) throw std::invalid_argument(refusal(refused));
  if (!markdown.empty()) write_text(markdown, gate_markdown(diff, limit));
  std::string line = fmt::format("{}; {}", headline(diff, limit), verdict(diff.worst_gated_pair()));
  for (const FoundObstacle& finding : found) line += fmt::format("; allowed: {}", finding.text);
  for (const std::string& doubt : doubts_about(diff, limit)) line += "; " + doubt;
  const std::string growth = growth_in(new_ranks);
  line += growth;
  const bool may_grow = fail_on.empty() || growth.empty();
  if (diff.worst_gated_pair().gated_growth_percent() <= limit && may_grow)
    return {.out = line + "\n", .error = {}};
  return {.exit_code = 1, .out = {}, .error = fmt::format("shardlens gate: {}\n", line)};
}

}  // namespace shardlens::profiler
