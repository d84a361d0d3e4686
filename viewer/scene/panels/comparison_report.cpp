#include "viewer/scene/panels/comparison_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string_view>

#include "base/fault.h"
#include "base/strict_json.h"
#include "base/units.h"
#include "profiler/compare/matching_json.h"
#include "profiler/recording/profile.h"
#include "profiler/report/block_names.h"
#include "profiler/report/judgement_json.h"
#include "viewer/model/compare.h"
#include "viewer/model/trace/joined_trace.h"
#include "viewer/paint/theme.h"
#include "viewer/scene/parts.h"
#include "viewer/state/facts.h"

namespace shardlens::viewer {

namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kLargest = 10;  // rows of what is alive and of what changed

/// A run with the facts that the report needs: for the whole run, or for its part in a range.
struct Subject {
  const Run* run = nullptr;
  const RankLane* rank = nullptr;  // the one with the highest moment
  Extent peak{};                   // that moment; empty if the run has nothing in the range
  std::vector<int64_t> rank_peaks{};
  bool is_whole = true;
  const Subject* base = nullptr;  // compared with: itself, or one of the same memory

  bool is_base() const { return base == this; }
  const Lane& lane() const { return rank->lane; }
  const std::string& name() const { return run->name; }
  int64_t bytes(Category category) const { return peak.at_max[static_cast<size_t>(category)]; }
};

Subject whole_run(const Run& run) {
  Subject subject{.run = &run, .rank = &run.at_peak()};
  subject.peak = subject.lane().peak();
  for (const RankLane& rank : run.ranks) subject.rank_peaks.push_back(rank.lane.peak().max_bytes);
  return subject;
}

Subject part(const Run& run, const std::vector<Warp>& warps, const Range& x) {
  Subject subject{.run = &run, .rank = &run.ranks.front()};
  subject.is_whole = false;
  for (size_t i = 0; i < run.ranks.size(); ++i) {
    const auto extent = column_of(warps[i], run.ranks[i].lane, x);
    subject.rank_peaks.push_back(extent ? extent->max_bytes : 0);
    if (!extent || extent->max_bytes <= subject.peak.max_bytes) continue;
    subject.rank = &run.ranks[i];
    subject.peak = *extent;
  }
  return subject;
}

using Subjects = std::vector<Subject>;

Subjects subjects_of(const std::vector<Run>& runs, size_t baseline,
                     const std::optional<ReportRange>& range) {
  Subjects subjects;
  const Warps warps = range ? warps_of(runs, range->alignment, baseline) : Warps();
  for (size_t i = 0; i < runs.size(); ++i) {
    subjects.push_back(range ? part(runs[i], warps[i], range->x) : whole_run(runs[i]));
  }
  return subjects;
}

bool subjects_have_shards(const Subjects& subjects) {
  return std::ranges::any_of(
      subjects, [](const Subject& one) { return profiler::has_shards(one.lane().info().header); });
}

/// Matches what a run has at its peak with what the baseline has at its own.
profiler::Matching match_peaks(const Subject& base, const Subject& one) {
  return match({&base.lane(), &base.rank->names, base.peak.max_change, &base.rank->notes},
               {&one.lane(), &one.rank->names, one.peak.max_change, &one.rank->notes});
}

/// Returns the name of the run's memory; "Memory" means tensors on the run's own device.
std::string_view memory_of(const Subject& one) {
  const LaneInfo& info = one.lane().info();
  if (info.space == info.header.space_of_tensors()) return "Memory";
  if (info.space == profiler::Space::segment) return "Reserved segments";
  return info.space == profiler::Space::pinned ? "Pinned memory" : "Host memory";
}

/// Returns "" or ", from 1 to 3 (step)".
std::string where_of(const std::optional<ReportRange>& range) {
  if (!range) return "";
  return fmt::format(", from {} to {} ({})", range->x.begin, range->x.end,
                     axis_title(range->alignment));
}

/// Returns the categories that any run has at its peak, from the top of the stack down.
std::vector<Category> categories_of(const Subjects& subjects) {
  std::vector<Category> used;
  const auto& order = stacking_order();
  for (size_t i = order.size(); i-- > 0;) {
    const auto is_used = [&](const Subject& one) { return one.bytes(order[i]) > 0; };
    if (std::ranges::any_of(subjects, is_used)) used.push_back(order[i]);
  }
  return used;
}

std::vector<AliveRow> largest_of(const Subject& one) {
  auto rows = alive_rows(one.lane(), one.rank->names, one.peak.max_change, Grouping::label);
  if (rows.size() > kLargest) rows.resize(kLargest);
  return rows;
}

std::string place_of(const Subject& one) {
  const Lane& lane = one.lane();
  const int64_t change = one.peak.max_change;
  if (change == kBeforeAll) return "nothing is allocated in this range";
  const Stretch* const stretch = lane.stretch_of_change(change);
  std::string text = fmt::format("rank {}", lane.rank());
  if (stretch != nullptr && stretch->number >= 0) text += fmt::format(", step {}", stretch->number);
  if (stretch != nullptr && stretch->number < 0) {
    text += fmt::format(", {}", to_string(stretch->phase));
  }
  const std::string action = action_text(*one.rank, change);
  return action.empty() ? text : text + ", " + action;
}

/// Returns a plan's verdict or, for a measured run, the comparison with its plan; empty without a
/// plan.
std::string plan_words(const Subject& one) {
  const Run& run = *one.run;
  if (run.outlook && one.is_whole) return fmt::format("predicted, {}", run.outlook->verdict);
  if (run.is_predicted()) return "predicted: nothing ran";
  if (!run.plan || !one.is_whole) return "";
  const int64_t planned = run.plan->lane.peak().max_bytes;
  return fmt::format("plan {}: measured {}", bytes_text(planned),
                     change_in_words(planned, one.peak.max_bytes));
}

/// Returns why the numbers of a run cannot be trusted; nothing if they can.
Problem doubt_of(const Run& run) {
  const profiler::Judgement judgement = run.judgement();
  if (profiler::is_whole(judgement)) return std::nullopt;
  return "recording " + profiler::judgement_text(judgement);
}

/// Returns the use of the device by the rank that leaves least free; nothing if it is unknown.
std::optional<DeviceUse> tightest_use(const Run& run) {
  std::optional<DeviceUse> tightest;
  for (const RankLane& rank : run.ranks) {
    const auto use = run.device_use(rank);
    const auto order = [](const DeviceUse& one) {
      return std::pair(!one.is_out_of_memory, one.free_bytes());
    };
    if (use && (!tightest || order(*use) < order(*tightest))) tightest = use;
  }
  return tightest;
}

/// Returns what each stream of the GPU did, of ranks with which a trace is open.
std::string work_text(const Subject& one) {
  std::string text;
  for (const RankLane& rank : one.run->ranks) {
    const std::string who =
        one.run->ranks.size() > 1 ? fmt::format("rank {}, ", rank.lane.rank()) : "";
    for (const StreamUse& use : streams_at_peak(rank)) text += "  " + who + use.text() + "\n";
  }
  return text;
}

Json work_json(const Subject& one) {
  Json all = Json::array();
  for (const RankLane& rank : one.run->ranks) {
    for (const StreamUse& use : streams_at_peak(rank)) {
      Json busy = Json::object();
      for (size_t kind = 0; kind < kWorkKinds; ++kind) {
        busy[std::string(kWords<profiler::GpuWork>[kind])] = use.busy_ns[kind];
      }
      all.push_back({{"rank", rank.lane.rank()},
                     {"stream", use.name},
                     {"trace_ns", use.trace_ns},
                     {"busy_ns", busy},
                     {"at_peak", use.at_moment.empty() ? Json() : Json(use.at_moment)}});
    }
  }
  return all;
}

/// Returns what is wrong with a run, and the parts of its reserved memory.
std::string findings_text(const Subject& one) {
  if (!one.is_whole) return "";
  constexpr int kMostGrowing = 4;
  std::string text;
  int growing = 0;
  for (const RankLane& rank : one.run->ranks) {
    const LaneFindings& found = rank.lane.info().findings;
    const std::string who =
        one.run->ranks.size() > 1 ? fmt::format("rank {} ", rank.lane.rank()) : "";
    const bool is_shown = !found.growth.empty() && ++growing <= kMostGrowing;
    if (is_shown) text += fmt::format("  {}{}\n", who, found.growth);
    const auto& failures = rank.lane.arrays().failures;
    if (!failures.empty()) {
      const std::string others =
          failures.size() == 1
              ? ""
              : fmt::format("; {} requests failed, this one last", failures.size());
      text += fmt::format("  {}{}{}\n", who, failure_text(rank, failures.back()), others);
    }
  }
  if (growing > kMostGrowing) text += fmt::format("  {} more ranks grow\n", growing - kMostGrowing);
  return text + one.lane().info().findings.reserved;
}

std::string subject_text(const Subject& one) {
  const Run& run = *one.run;
  std::string text = fmt::format("{}\n", run.name);
  if (!run.strategy.empty()) text += fmt::format("  {}\n", run.strategy);
  if (const Problem doubt = doubt_of(run)) text += "  " + *doubt + "\n";
  text += fmt::format("  peak {}{} in {}\n", bound_prefix(run.judgement()),
                      bytes_text(one.peak.max_bytes), place_of(one));
  if (const std::string words = plan_words(one); !words.empty()) text += "  " + words + "\n";
  if (const auto& step_peak = one.lane().step_peak(); step_peak && one.is_whole) {
    text += fmt::format("  from the third step on: {}\n", bytes_text(step_peak->max_bytes));
  }
  if (!one.is_base()) {
    text += fmt::format("  {} against {}\n",
                        change_in_words(one.base->peak.max_bytes, one.peak.max_bytes),
                        one.base->name());
  }
  if (const auto use = tightest_use(run)) text += "  headroom " + headroom_text(*use) + "\n";
  if (one.is_whole) text += work_text(one);
  return text + findings_text(one);
}

/// Returns what changed from the run's baseline, the place that differs most first.
std::string changes_text(const Subject& one, bool has_shards) {
  const Subject& base = *one.base;
  const profiler::Matching matching = match_peaks(base, one);
  std::string text = fmt::format(
      "\nChanged from {} to {}\n  {:>12}  in both\n  {:>12}  only in {}\n"
      "  {:>12}  only in {}\n",
      base.name(), one.name(), bytes_text(matching.in_both_bytes),
      bytes_text(matching.only_a_bytes), base.name(), bytes_text(matching.only_b_bytes),
      one.name());
  size_t rows = 0;
  for (const profiler::MatchedPlace& row : matching.rows) {
    if (row.changed_bytes() == 0) continue;
    if (++rows > kLargest) continue;
    text += fmt::format("  {} ({}): {}; {}\n", row.name, words_of(row.category, has_shards),
                        change_in_words(row.a_bytes, row.b_bytes), holding_text(row));
  }
  if (rows > kLargest) text += fmt::format("  {} more places differ\n", rows - kLargest);
  return text;
}

/// Returns ", compared with keep", with one name for each memory in which runs are compared.
std::string bases_text(const Subjects& subjects) {
  std::vector<std::string> names;
  for (const Subject& one : subjects) {
    const std::string& name = one.base->name();
    if (!one.is_base() && std::ranges::find(names, name) == names.end()) names.push_back(name);
  }
  return names.empty() ? "" : fmt::format(", compared with {}", fmt::join(names, " and "));
}

std::string text_report(const Subjects& subjects, const Subject& base, const std::string& where) {
  const bool has_shards = subjects_have_shards(subjects);
  const std::string what =
      subjects.size() > 1 ? fmt::format("{} runs", subjects.size()) : base.name();
  std::string text =
      fmt::format("{} of {}{}{}\n\n", memory_of(base), what, bases_text(subjects), where);
  for (const Subject& one : subjects) text += subject_text(one) + "\n";
  text += "At each run's peak\n";
  for (const Category category : categories_of(subjects)) {
    text += fmt::format("  {}\n", words_of(category, has_shards));
    for (const Subject& one : subjects) {
      const int64_t bytes = one.bytes(category);
      text += fmt::format("    {:>12}  {}", bytes_text(bytes), one.name());
      if (!one.is_base()) {
        text += fmt::format(": {}", change_in_words(one.base->bytes(category), bytes));
      }
      text += "\n";
    }
  }
  for (const Subject& one : subjects) {
    if (!one.is_base()) text += changes_text(one, has_shards);
  }
  for (const Subject& one : subjects) {
    text += fmt::format("\nLargest at the peak of {}\n", one.name());
    for (const AliveRow& row : largest_of(one)) {
      const std::string names = profiler::names_text(row.names);
      text += fmt::format("  {:>12}  {} ({}, {} block{}){}{}\n", bytes_text(row.bytes), row.name,
                          words_of(row.category, has_shards), row.count, row.count == 1 ? "" : "s",
                          names.empty() ? "" : ": ", names);
    }
  }
  return text;
}

/// Returns the requests that failed, with who asked.
Json failures_json(const RankLane& rank) {
  Json all = Json::array();
  for (const FailedRequest& failure : rank.lane.arrays().failures) {
    all.push_back({{"rank", rank.lane.rank()},
                   {"place", rank.lane.label(failure.label)},
                   {"category", to_string(failure.category)},
                   {"asked_bytes", failure.asked_bytes},
                   {"device_free_bytes", failure.free_bytes},
                   {"reserved_bytes", failure.reserved_bytes},
                   {"largest_free_bytes", failure.largest_free_bytes}});
  }
  return all;
}

Json json_of(const Subject& one) {
  const Run& run = *one.run;
  Json categories = Json::object();
  for (int i = 0; i < kCategories; ++i) {
    const auto category = static_cast<Category>(i);
    categories[std::string(kWords<profiler::Category>[static_cast<size_t>(i)])] =
        one.bytes(category);
  }
  Json ranks = Json::array();
  Json failures = Json::array();
  for (size_t i = 0; i < run.ranks.size(); ++i) {
    const Lane& lane = run.ranks[i].lane;
    for (Json& failure : failures_json(run.ranks[i])) failures.push_back(std::move(failure));
    ranks.push_back({{"rank", lane.rank()},
                     {"peak_allocated_bytes", one.rank_peaks[i]},
                     {"lost", lane.info().judgement.lost_events},
                     {"judgement", profiler::judgement_json(lane.info().judgement)}});
  }
  const Json nothing = nullptr;
  const auto& step_peak = one.lane().step_peak();
  const auto use = one.is_whole ? tightest_use(run) : std::nullopt;
  const bool has_headroom = use && !use->is_out_of_memory;
  const LaneFindings& found = one.lane().info().findings;
  const Json comparison =
      one.is_base() ? nothing
                    : profiler::matching_json(match_peaks(*one.base, one), "baseline", "here");
  return {{"name", run.name},
          {"strategy", run.strategy},
          {"judgement", profiler::judgement_json(run.judgement())},
          {"peak_allocated_bytes", one.peak.max_bytes},
          {"step_peak_allocated_bytes",
           one.is_whole && step_peak ? Json(step_peak->max_bytes) : nothing},
          {"baseline", one.base->name()},
          {"growth_bytes", one.peak.max_bytes - one.base->peak.max_bytes},
          {"comparison", comparison},
          {"at_peak", {{"place", place_of(one)}, {"categories", categories}}},
          {"capacity_bytes", run.capacity_bytes()},
          {"reserved_peak_bytes", one.is_whole ? Json(one.lane().reserved_peak()) : nothing},
          {"beside_pytorch_bytes", use && use->beside_bytes ? Json(*use->beside_bytes) : nothing},
          {"headroom_bytes", has_headroom ? Json(use->free_bytes()) : nothing},
          {"growth", one.is_whole && !found.growth.empty() ? Json(found.growth) : nothing},
          {"out_of_memory", std::move(failures)},
          {"gpu_work", one.is_whole ? work_json(one) : Json::array()},
          {"predicted", run.is_predicted()},
          {"plan_peak_allocated_bytes",
           one.is_whole && run.plan ? Json(run.plan->lane.peak().max_bytes) : nothing},
          {"ranks", ranks}};
}

std::string json_report(const Subjects& subjects, const Subject& base,
                        const std::optional<ReportRange>& range) {
  const auto space = static_cast<size_t>(base.lane().info().space);
  Json report = {{"schema", "shardlens.view/1"},
                 {"baseline", base.name()},
                 {"space", kWords<profiler::Space>[space]}};
  if (range) {
    report["range"] = {
        {"axis", axis_title(range->alignment)}, {"begin", range->x.begin}, {"end", range->x.end}};
  }
  report["strategies"] = Json::array();
  for (const Subject& one : subjects) report["strategies"].push_back(json_of(one));
  return json_text(report);
}

std::string csv_quoted(const std::string& text) {
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? "\"\"" : std::string(1, c);
  return quoted + "\"";
}

std::string csv_report(const Subjects& subjects) {
  const bool has_shards = subjects_have_shards(subjects);
  std::string csv = "strategy,category,bytes,growth_bytes,recording\n";
  for (const Subject& one : subjects) {
    const std::string name = csv_quoted(one.name());
    const int64_t peak = one.peak.max_bytes;
    const profiler::Judgement judgement = one.run->judgement();
    const std::string word =
        csv_quoted(profiler::is_whole(judgement) ? "whole" : profiler::judgement_text(judgement));
    csv += fmt::format("{},all,{},{},{}\n", name, peak, peak - one.base->peak.max_bytes, word);
    for (const Category category : categories_of(subjects)) {
      const int64_t bytes = one.bytes(category);
      csv += fmt::format("{},{},{},{},{}\n", name, profiler::category_name(category, has_shards),
                         bytes, bytes - one.base->bytes(category), word);
    }
  }
  return csv;
}

}  // namespace

ReportFormat report_format(const std::string& path) {
  if (path.ends_with(".txt")) return ReportFormat::text;
  if (path.ends_with(".json")) return ReportFormat::json;
  if (path.ends_with(".csv")) return ReportFormat::csv;
  throw std::invalid_argument(fmt::format(
      "--report {}: not a kind of report; end its name in .txt, .json or .csv, or write "
      "a page with --export",
      path));
}

std::string comparison_report(const std::vector<Run>& runs, size_t baseline, ReportFormat format,
                              const std::optional<ReportRange>& range,
                              const std::vector<size_t>& earlier_baselines) {
  Subjects subjects = subjects_of(runs, baseline, range);
  const std::vector<size_t> bases = bases_of(runs, baseline, earlier_baselines);
  for (size_t i = 0; i < subjects.size(); ++i) subjects[i].base = &subjects[bases[i]];
  const Subject& base = subjects[baseline];
  switch (format) {
    case ReportFormat::text:
      return text_report(subjects, base, where_of(range));
    case ReportFormat::json:
      return json_report(subjects, base, range);
    case ReportFormat::csv:
      break;
  }
  return csv_report(subjects);
}

}  // namespace shardlens::viewer
