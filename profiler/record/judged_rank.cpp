#include "profiler/record/judged_rank.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "profiler/program/pulled_levers.h"
#include "profiler/record/advice/host_need.h"
#include "profiler/record/levers/lever_sites.h"
#include "profiler/recording/events.h"
#include "profiler/recording/peak_bands.h"
#include "profiler/report/recording_report.h"

namespace shardlens::profiler {

namespace {

/// Every program that copies to a GPU pins some memory; from here on it is worth a line.
constexpr int64_t kLeastPinnedBytes = int64_t{64} << 20;

ReplayedRun replayed_run(const JudgedRank& rank) {
  return {.path = rank.report.source,
          .torch = pytorch_version(rank.report.header),
          .limit_bytes = rank.report.header.capacity_bytes - rank.outside.bytes,
          .allocated_peak_bytes = rank.report.peak_bytes(),
          .reserved_peak_bytes = rank.report.reserved_peak_bytes().value_or(0),
          .retries = rank.facts.retries};
}

/// Keeps the verdict, and which levers would act in the program if it was watched for that.
void keep_for_variants(const JudgedRank& rank, const RecordOptions& options,
                       const Accounts& accounts) {
  const std::string& path = rank.report.source;
  keep_verdict(path, {.line = rank.verdict.line,
                      .exit_code = rank.verdict.exit_code,
                      .is_out_of_memory = rank.verdict.is_out_of_memory,
                      .allocated_bytes = rank.report.peak_bytes(),
                      .reserved_bytes = rank.report.reserved_peak_bytes().value_or(0),
                      .beside_bytes = rank.outside.bytes});
  if (options.looks) keep_fact(path, "lever_sites", lever_accounts_json(accounts));
}

JudgedRank judge_one(const RecordOptions& options, const std::string& path, const Problem& failure,
                     const ReplayRun& replay) {
  JudgedRank rank{.report = report_of(path), .facts = read_record_facts(path)};
  rank.report.source = path;
  rank.outside = outside_of(options, rank.report, rank.facts);
  if (replay && rank.report.reserved_peak_bytes()) {
    rank.facts.replays = replay(replayed_run(rank));
    rank.report.bands = rank.facts.replays.bands;
    keep_fact(path, "bands", bands_json(rank.report.bands));
  }
  rank.report.take_outside(rank.outside.bytes);
  rank.verdict = verdict_of(rank.report, rank.facts, rank.outside.bytes, failure);
  if (!rank.outside.doubt.empty()) rank.verdict.doubts.push_back(rank.outside.doubt);
  keep_outside(path, rank.outside);
  rank.comparison = compare_counters(rank.report, rank.facts);
  if (rank.comparison) keep_comparison(path, *rank.comparison);
  rank.host = host_need_of(options, rank.report, rank.facts);
  if (rank.host) keep_host_need(path, *rank.host);
  rank.advice = advice_for(evidence_of(rank.report, rank.verdict, rank.facts.uses));
  keep_advice(path, rank.advice);
  return rank;
}

/// Returns "not drawn on the host: values of 290 tensors (29.91 GiB), ...".
std::string left_out_text(const LeftOutFills& fills) {
  return fmt::format(
      "  not drawn on the host: random values of {} tensor{} ({}), which nothing read\n",
      fills.tensors, fills.tensors == 1 ? "" : "s", bytes_text(fills.bytes));
}

}  // namespace

std::vector<JudgedRank> judge(const RecordOptions& options, const RecordedRun& run,
                              const ReplayRun& replay) {
  const Problem failure = failure_text(run.accounts, run.end);
  std::vector<JudgedRank> ranks;
  for (const auto& path : run.recordings) {
    ranks.push_back(judge_one(options, path.string(), failure, replay));
    keep_for_variants(ranks.back(), options, run.accounts);
  }
  return ranks;
}

std::string verdict_text(const JudgedRank& rank) {
  const std::string levers = pulled_levers_text(rank.report.header.config);
  const std::string changed = levers.empty() ? "" : "with " + levers + ": ";
  std::string text = fmt::format("{}: {}{}\n", rank.report.source, changed, rank.verdict.line);
  if (const auto& comparison = rank.comparison) {
    text += fmt::format("  {}{}\n", comparison->is_equal ? "" : "in doubt: ", comparison->line);
  }
  if (rank.facts.left_out.tensors > 0) text += left_out_text(rank.facts.left_out);
  for (const HoldingVariable& holder : rank.report.holders) {
    text += fmt::format("  held by {}\n", holder_text(holder));
  }
  for (const std::string& doubt : rank.verdict.doubts) {
    text += fmt::format("  in doubt: {}\n", doubt);
  }
  if (!rank.outside.estimate.empty()) {
    text += fmt::format("  estimated, beside PyTorch: {}\n", rank.outside.estimate);
  }
  if (rank.host && rank.host->pinned_bytes >= kLeastPinnedBytes) {
    text += fmt::format("  {}\n", host_need_text(*rank.host));
  }
  return text;
}

}  // namespace shardlens::profiler
