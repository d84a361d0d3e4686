#include "profiler/record/record_verdict.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/input_file.h"
#include "base/limits.h"
#include "base/output_file.h"
#include "base/strict_json.h"
#include "base/units.h"

namespace shardlens::profiler {

namespace {

namespace fs = std::filesystem;

/// Returns "in step 2", or "before its first step".
std::string when_text(int64_t step) {
  return step < 0 ? "before its first step" : fmt::format("in step {}", step);
}

std::vector<std::string> doubts_in(const nlohmann::json& facts) {
  std::vector<std::string> doubts;
  const auto found = facts.find("doubts");
  if (found == facts.end() || !found->is_array()) return doubts;
  for (const auto& doubt : *found) {
    if (doubt.is_string()) doubts.push_back(doubt.get<std::string>());
  }
  return doubts;
}

std::vector<GpuGroup> communicators_in(const nlohmann::json& facts) {
  constexpr int64_t kMostRanks = 1 << 24;
  std::vector<GpuGroup> communicators;
  const auto found = facts.find("communicators");
  if (found == facts.end() || !found->is_array()) return communicators;
  for (const auto& one : *found) {
    const int64_t ranks = whole_in(one, "ranks").value_or(0);
    const int64_t on_node = whole_in(one, "on_node").value_or(0);
    if (ranks < 2 || ranks > kMostRanks || on_node < 1 || on_node > ranks) continue;
    communicators.push_back(
        {.ranks = static_cast<int>(ranks), .on_node = static_cast<int>(on_node)});
  }
  return communicators;
}

std::vector<std::vector<int>> groups_in(const nlohmann::json& facts) {
  std::vector<std::vector<int>> groups;
  const auto found = facts.find("groups");
  if (found == facts.end() || !found->is_array()) return groups;
  for (const auto& ranks : *found) {
    const auto is_rank = [](const auto& rank) { return rank.is_number_integer(); };
    if (!ranks.is_array() || !std::ranges::all_of(ranks, is_rank)) continue;
    groups.push_back(ranks.template get<std::vector<int>>());
  }
  return groups;
}

/// Describes the last request that failed: if one ended the program, it is that one.
std::string out_of_memory_line(const RankReport& report, int64_t outside_bytes,
                               const Problem& failure) {
  const OutOfMemory& last = report.out_of_memory.back();
  const std::string others =
      report.out_of_memory_count == 1
          ? ""
          : fmt::format("; {} requests failed, this one last", report.out_of_memory_count);
  return fmt::format(
      "does not fit: out of memory {}{}: {} could not be allocated, with {} allocated and {} "
      "reserved by PyTorch, of {} ({} are taken beside PyTorch){}; {}",
      when_text(last.at.step), last.label.empty() ? "" : " at " + last.label,
      bytes_text(last.asked_bytes), bytes_text(last.blocks.allocated()),
      bytes_text(last.blocks.reserved), bytes_text(report.header.capacity_bytes),
      bytes_text(outside_bytes), others, failure.value_or("the program went on without it"));
}

/// Returns how far the program got. A step begins in a recording with its first allocation.
std::string progress_text(const RankReport& report, const RecordFacts& facts) {
  if (facts.steps > 0)
    return fmt::format("after {} step{}", facts.steps, facts.steps > 1 ? "s" : "");
  if (report.steps.empty()) return "before its first step";
  if (facts.is_known) return "in its first step";
  return fmt::format("after its step {} had begun", report.steps.back().step);
}

std::optional<int64_t> counted_figure(const RecordFacts& facts, Figure figure) {
  return facts.counted[static_cast<size_t>(figure)];
}

/// Holds the peaks that a verdict is about.
struct Peaks {
  int64_t allocated = 0;
  int64_t reserved = 0;
  bool are_counted = false;   // by PyTorch, because its history has dropped events
  bool may_be_lower = false;  // lost events may have been frees
};

Peaks peaks_of(const RankReport& report, const RecordFacts& facts) {
  const auto allocated = counted_figure(facts, Figure::peak_allocated);
  const auto reserved = counted_figure(facts, Figure::peak_reserved);
  if (facts.is_history && report.judgement.lost_events > 0 && allocated && reserved) {
    return {.allocated = *allocated, .reserved = *reserved, .are_counted = true};
  }
  return {.allocated = report.peak_bytes(),
          .reserved = report.reserved_peak_bytes().value_or(0),
          .may_be_lower = report.judgement.bound() == PeakBound::about};
}

/// Returns why the peaks may not be those of the whole program, or nothing if they are.
Problem why_incomplete(const RankReport& report, const RecordFacts& facts, const Peaks& peaks,
                       const Problem& failure) {
  if (failure) return fmt::format("{}, {}", *failure, progress_text(report, facts));
  if (!facts.is_known) return "its process ended without closing the recording";
  if (peaks.are_counted || report.judgement.is_exact()) return std::nullopt;
  return judgement_text(report.judgement);
}

fs::path facts_file_of(const std::string& recording) {
  return fs::path(recording).replace_extension(".json");
}

std::optional<nlohmann::json> facts_beside(const std::string& recording) {
  const auto text = read_file(facts_file_of(recording), kDescription.bytes).text;
  auto json = find_json(text);
  if (!json || !json->is_object()) return std::nullopt;
  return json;
}

RecordVerdict no_verdict(const RankReport& report, const Peaks& peaks, int64_t outside_bytes,
                         const std::string& why) {
  return {
      .line = fmt::format("no verdict: {}; the peak so far, {} allocated and {} reserved and {} "
                          "beside PyTorch, of {}, is {}",
                          why, bytes_text(peaks.allocated), bytes_text(peaks.reserved),
                          bytes_text(outside_bytes), bytes_text(report.header.capacity_bytes),
                          peaks.may_be_lower ? "not exact" : "a lower bound"),
      .exit_code = kNotRecorded};
}

struct FigureName {
  const char* key;    // in rankR.json
  const char* words;  // after a number
};
constexpr std::array<FigureName, kFigures> kFigureNames = {
    {{"peak_allocated_bytes", "bytes allocated at the peak"},
     {"peak_reserved_bytes", "bytes reserved at the peak"},
     {"allocations", "allocations"},
     {"allocated_bytes", "bytes allocated at the end"},
     {"reserved_bytes", "bytes reserved at the end"}}};

Figures figures_in(const nlohmann::json& json) {
  Figures figures;
  for (size_t i = 0; i < kFigures; ++i) figures[i] = whole_in(json, kFigureNames[i].key);
  return figures;
}

Figures figures_of(const RankReport& report) {
  const SpaceReport& space = *report.main_space();
  return {report.peak_bytes(), report.reserved_peak_bytes().value_or(0), space.allocations,
          space.end_bytes, report.blocks_at_end.reserved};
}

/// Returns "10 allocations, not 9", with PyTorch's figure first.
std::string difference(const Figures& by_pytorch, const Figures& recorded) {
  std::string text;
  for (size_t i = 0; i < kFigures; ++i) {
    if (!by_pytorch[i] || by_pytorch[i] == recorded[i]) continue;
    text += fmt::format("{}{} {}, not {}", text.empty() ? "" : "; ", *by_pytorch[i],
                        kFigureNames[i].words, recorded[i].value_or(0));
  }
  return text;
}

}  // namespace

RecordFacts read_record_facts(const std::string& recording) {
  const auto json = facts_beside(recording);
  if (!json) return {};
  const auto read = json->value("values_read", nlohmann::json());
  const auto fills = json->value("fills", nlohmann::json());
  return {.retries = whole_in(*json, "retries").value_or(0),
          .steps = whole_in(*json, "steps").value_or(0),
          .shapes = whole_in(read, "shapes").value_or(0),
          .counted = figures_in(*json),
          .communicators = communicators_in(*json),
          .groups = groups_in(*json),
          .doubts = doubts_in(*json),
          .uses = read_program_uses(json->value("uses", nlohmann::json())),
          .left_out = {.tensors = whole_in(fills, "left_out").value_or(0),
                       .bytes = whole_in(fills, "bytes").value_or(0)},
          .is_history = json->value("history", nlohmann::json()) == true,
          .is_known = true};
}

std::optional<Comparison> compare_counters(const RankReport& report, const RecordFacts& facts) {
  if (!counted_figure(facts, Figure::peak_allocated) || report.main_space() == nullptr) {
    return std::nullopt;
  }
  const Figures recorded = figures_of(report);
  const std::string differs = difference(facts.counted, recorded);
  return Comparison{
      .is_equal = differs.empty(),
      .line = differs.empty() ? "as PyTorch counted: equal" : "not as PyTorch counted: " + differs,
      .recorded = recorded};
}

void keep_comparison(const std::string& recording, const Comparison& comparison) {
  auto json = facts_beside(recording);
  if (!json) return;
  (*json)["as_pytorch_counted"] = comparison.is_equal;
  for (size_t i = 0; i < kFigures; ++i) {
    (*json)["recorded"][kFigureNames[i].key] = comparison.recorded[i].value_or(0);
  }
  write_text(facts_file_of(recording).string(), json->dump() + "\n");
}

void keep_fact(const std::string& recording, const char* key, const nlohmann::json& value) {
  auto json = facts_beside(recording);
  if (!json) return;
  (*json)[key] = value;
  write_text(facts_file_of(recording).string(), json->dump() + "\n");
}

void keep_verdict(const std::string& recording, const KeptVerdict& verdict) {
  keep_fact(recording, "verdict",
            {{"line", verdict.line},
             {"exit_code", verdict.exit_code},
             {"is_out_of_memory", verdict.is_out_of_memory},
             {"allocated_bytes", verdict.allocated_bytes},
             {"reserved_bytes", verdict.reserved_bytes},
             {"beside_bytes", verdict.beside_bytes}});
}

std::optional<KeptVerdict> read_verdict(const std::string& recording) {
  const auto facts = facts_beside(recording);
  const auto kept = facts ? facts->value("verdict", nlohmann::json()) : nlohmann::json();
  const auto line = text_in(kept, "line");
  const auto exit_code = whole_in(kept, "exit_code");
  if (!line || !exit_code) return std::nullopt;
  return KeptVerdict{.line = *line,
                     .exit_code = static_cast<int>(*exit_code),
                     .is_out_of_memory = kept.value("is_out_of_memory", nlohmann::json()) == true,
                     .allocated_bytes = whole_in(kept, "allocated_bytes").value_or(0),
                     .reserved_bytes = whole_in(kept, "reserved_bytes").value_or(0),
                     .beside_bytes = whole_in(kept, "beside_bytes").value_or(0)};
}

void keep_outside(const std::string& recording, const OutsideBytes& outside) {
  keep_fact(recording, "beside_pytorch",
            {{"bytes", outside.bytes},
             {"least_bytes", outside.least_bytes},
             {"most_bytes", outside.most_bytes},
             {"from", outside.from}});
}

void keep_host_need(const std::string& recording, const HostNeed& need) {
  keep_fact(recording, "host",
            {{"rank_bytes", need.rank_bytes},
             {"pinned_bytes", need.pinned_bytes},
             {"ranks_on_node", need.ranks_on_node},
             {"node_bytes", need.node_bytes()}});
}

namespace {

/// Returns what a program takes that never waits for memory: "8.53 GiB", or a lower bound. Retries
/// give memory back, so the recorded peak says little then; but more was wanted than there was.
std::string without_retries_text(const RecordFacts& facts, const Peaks& peaks,
                                 int64_t outside_bytes, int64_t capacity_bytes) {
  if (const auto unlimited = facts.replays.unlimited_peak_bytes) {
    return bytes_text(*unlimited + outside_bytes);
  }
  const int64_t reserved = peaks.reserved + outside_bytes;
  if (reserved > capacity_bytes) return bytes_text(reserved) + " or more";
  return "more than " + bytes_text(capacity_bytes);
}

/// Returns the verdict without its doubts.
RecordVerdict plain_verdict(const RankReport& report, const RecordFacts& facts, const Peaks& peaks,
                            int64_t outside_bytes, const Problem& failure) {
  const int64_t capacity_bytes = report.header.capacity_bytes;
  const int64_t allocated_bytes = peaks.allocated + outside_bytes;
  const int64_t reserved_bytes = peaks.reserved + outside_bytes;
  const std::string outside = fmt::format("including {} beside PyTorch", bytes_text(outside_bytes));
  const std::string capacity = bytes_text(capacity_bytes);
  if (report.out_of_memory_count > 0) {
    return {.line = out_of_memory_line(report, outside_bytes, failure),
            .exit_code = kDoesNotFit,
            .is_out_of_memory = true};
  }
  if (allocated_bytes > capacity_bytes && !peaks.may_be_lower) {
    return {.line = fmt::format("does not fit: takes {} or more ({}), but there are {}{}",
                                bytes_text(allocated_bytes), outside, capacity,
                                failure ? "; " + *failure : ""),
            .exit_code = kDoesNotFit};
  }
  if (const Problem why = why_incomplete(report, facts, peaks, failure)) {
    return no_verdict(report, peaks, outside_bytes, *why);
  }
  if (report.main_space() == nullptr) {
    return {.line = "no verdict: nothing was allocated on the GPU", .exit_code = kNotRecorded};
  }
  if (facts.retries > 0 || reserved_bytes > capacity_bytes) {
    return {.line = fmt::format("fits with retries, each a stall: without them it takes {} ({}), "
                                "but there are {}",
                                without_retries_text(facts, peaks, outside_bytes, capacity_bytes),
                                outside, capacity),
            .exit_code = kFitsWithRetries};
  }
  const int64_t free_bytes = capacity_bytes - reserved_bytes;
  return {.line = fmt::format("fits: {} of {} ({}), {} free", bytes_text(reserved_bytes), capacity,
                              outside, bytes_text(free_bytes)),
          .is_nearly_full = free_bytes < capacity_bytes / 10};
}

/// Returns a line on the part of the peak whose size only a GPU can tell, or "".
std::string bounds_text(const RankReport& report) {
  if (report.main_space() == nullptr) return {};
  int64_t bytes = 0;
  for (const NamedAllocation& tensor : report.main_space()->tensors) {
    if (tensor.label.ends_with(kUpperBound)) bytes += tensor.given_bytes;
  }
  if (bytes == 0) return {};
  return fmt::format("{} of the peak are upper bounds: the peak lies between {} and {}",
                     bytes_text(bytes), bytes_text(report.peak_bytes() - bytes),
                     bytes_text(report.peak_bytes()));
}

void add_address_doubts(std::vector<std::string>& doubts, const RankReport& report,
                        const RecordFacts& facts) {
  if (!facts.replays.doubt.empty()) doubts.push_back(facts.replays.doubt);
  if (!facts.replays.bands_in_gpu) return;
  const Verdict has_room = facts.retries > 0 ? Verdict::fits_with_retries : Verdict::fits;
  const Verdict seen = report.out_of_memory_count > 0 ? Verdict::does_not_fit : has_room;
  const std::vector<std::string> more = doubts_of(*facts.replays.bands_in_gpu, seen);
  doubts.insert(doubts.end(), more.begin(), more.end());
}

}  // namespace

RecordVerdict verdict_of(const RankReport& report, const RecordFacts& facts, int64_t outside_bytes,
                         const Problem& failure) {
  const Peaks peaks = peaks_of(report, facts);
  RecordVerdict verdict = plain_verdict(report, facts, peaks, outside_bytes, failure);
  if (report.growth) {
    verdict.grows = true;
    verdict.line += (verdict.exit_code == 0 ? ", but " : "; ") + growth_text(*report.growth);
  }
  if (peaks.are_counted) {
    verdict.doubts.emplace_back(
        "the peaks are from PyTorch's own counters, because its memory history has dropped events");
  }
  if (const std::string bounds = bounds_text(report); !bounds.empty()) {
    verdict.doubts.push_back(bounds);
  }
  add_address_doubts(verdict.doubts, report, facts);
  if (facts.shapes > 0) {
    verdict.doubts.emplace_back(
        "shapes depended on values, which are 0 here: the program may take more on a GPU");
  }
  if (facts.steps == 1 && verdict.exit_code != kDoesNotFit && verdict.exit_code != kNotRecorded) {
    verdict.doubts.emplace_back(
        "only one step was recorded: later steps also hold the optimizer state that it made, and "
        "may take more");
  }
  verdict.doubts.insert(verdict.doubts.end(), facts.doubts.begin(), facts.doubts.end());
  return verdict;
}

int exit_code_of(const CommandEnd& end, const std::vector<RecordVerdict>& verdicts,
                 bool is_out_of_memory, bool may_grow) {
  if (is_out_of_memory || std::ranges::any_of(verdicts, &RecordVerdict::is_out_of_memory)) {
    return kDoesNotFit;
  }
  if (verdicts.empty()) return end.is_by_signal() ? end.exit_code : kNotRecorded;
  if (end.is_failure()) return end.exit_code;
  for (const int code : {kDoesNotFit, kNotRecorded, kFitsWithRetries}) {
    const auto has_it = [&](const RecordVerdict& verdict) { return verdict.exit_code == code; };
    if (std::ranges::any_of(verdicts, has_it)) return code;
  }
  if (!may_grow && std::ranges::any_of(verdicts, &RecordVerdict::grows)) return kGrows;
  return 0;
}

}  // namespace shardlens::profiler
