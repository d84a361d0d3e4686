#include "runtime/record/record_verdict.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "input/input_file.h"
#include "input/limits.h"
#include "input/strict_json.h"
#include "profiler/output_file.h"
#include "profiler/units.h"

namespace shardlens::runtime {

namespace {

namespace fs = std::filesystem;
using profiler::bytes_text;

/// "in step 2", or "before its first step".
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

/// Of the last request that failed: the one that ended the program, if one has.
std::string out_of_memory_line(const profiler::RankReport& report, int64_t outside_bytes,
                               const std::string& failure) {
  const profiler::OutOfMemory& last = report.out_of_memory.back();
  const std::string others =
      report.out_of_memory_count == 1
          ? ""
          : fmt::format("; {} requests failed, this one last", report.out_of_memory_count);
  return fmt::format(
      "does not fit: out of memory {}{}: {} could not be allocated, with {} allocated and {} "
      "reserved by PyTorch, of {} ({} are taken beside it){}; {}",
      when_text(last.at.step), last.label.empty() ? "" : " at " + last.label,
      bytes_text(last.asked_bytes), bytes_text(last.blocks.allocated()),
      bytes_text(last.blocks.reserved), bytes_text(report.header.capacity_bytes),
      bytes_text(outside_bytes), others,
      failure.empty() ? "the program went on without it" : failure);
}

/// A step begins in a recording with its first allocation.
std::string progress_text(const profiler::RankReport& report, const RecordFacts& facts) {
  if (facts.steps > 0)
    return fmt::format("after {} step{}", facts.steps, facts.steps > 1 ? "s" : "");
  if (report.steps.empty()) return "before its first step";
  if (facts.is_known) return "in its first step";
  return fmt::format("after its step {} had begun", report.steps.back().step);
}

/// Why the peak that was recorded may not be the program's; empty: it is.
std::string why_incomplete(const profiler::RankReport& report, const RecordFacts& facts,
                           const std::string& failure) {
  if (!failure.empty()) return fmt::format("{}, {}", failure, progress_text(report, facts));
  if (!facts.is_known) return "its process ended and did not close the recording";
  return report.judgement.is_exact() ? "" : profiler::judgement_text(report.judgement);
}

/// Events that were lost may have been frees.
bool may_be_lower(const profiler::RankReport& report) {
  return report.judgement.bound() == profiler::PeakBound::about;
}

fs::path facts_file_of(const std::string& recording) {
  return fs::path(recording).replace_extension(".json");
}

std::optional<nlohmann::json> facts_beside(const std::string& recording) {
  const auto text = input::read_file(facts_file_of(recording), input::kDescription.bytes).text;
  auto json = input::find_json(text);
  if (!json || !json->is_object()) return std::nullopt;
  return json;
}

RecordVerdict no_verdict(const profiler::RankReport& report, int64_t outside_bytes,
                         const std::string& why) {
  return {
      .line = fmt::format("no verdict: {}; the peak so far, {} allocated and {} reserved and {} "
                          "beside PyTorch, of {}, is {}",
                          why, bytes_text(report.peak_bytes()),
                          bytes_text(report.reserved_peak_bytes().value_or(0)),
                          bytes_text(outside_bytes), bytes_text(report.header.capacity_bytes),
                          may_be_lower(report) ? "not exact" : "a lower bound"),
      .exit_code = kNotRecorded};
}

}  // namespace

RecordFacts read_record_facts(const std::string& recording) {
  const auto json = facts_beside(recording);
  if (!json) return {};
  const auto read = json->value("values_read", nlohmann::json());
  return {.retries = input::whole_in(*json, "retries").value_or(0),
          .steps = input::whole_in(*json, "steps").value_or(0),
          .shapes = input::whole_in(read, "shapes").value_or(0),
          .peak_allocated_bytes = input::whole_in(*json, "peak_allocated_bytes"),
          .peak_reserved_bytes = input::whole_in(*json, "peak_reserved_bytes"),
          .doubts = doubts_in(*json),
          .is_known = true};
}

std::optional<CountedPeaks> counted_peaks(const profiler::RankReport& report,
                                          const RecordFacts& facts) {
  if (!facts.peak_allocated_bytes || !facts.peak_reserved_bytes) return std::nullopt;
  if (report.main_space() == nullptr) return std::nullopt;
  const int64_t allocated = report.peak_bytes();
  const int64_t reserved = report.reserved_peak_bytes().value_or(0);
  if (allocated == *facts.peak_allocated_bytes && reserved == *facts.peak_reserved_bytes) {
    return CountedPeaks{.is_equal = true, .line = "as PyTorch counted: equal"};
  }
  return CountedPeaks{
      .line = fmt::format(
          "not as PyTorch counted: {} allocated and {} reserved at most, not {} and "
          "{} bytes",
          *facts.peak_allocated_bytes, *facts.peak_reserved_bytes, allocated, reserved)};
}

void keep_counted_peaks(const std::string& recording, const CountedPeaks& counted) {
  auto json = facts_beside(recording);
  if (!json) return;
  (*json)["as_pytorch_counted"] = counted.is_equal;
  profiler::write_text(facts_file_of(recording).string(), json->dump() + "\n");
}

RecordVerdict verdict_of(const profiler::RankReport& report, const RecordFacts& facts,
                         int64_t outside_bytes, const std::string& failure) {
  const int64_t capacity_bytes = report.header.capacity_bytes;
  const int64_t allocated_bytes = report.peak_bytes() + outside_bytes;
  const int64_t reserved_bytes = report.reserved_peak_bytes().value_or(0) + outside_bytes;
  const std::string outside = fmt::format("{} of it beside PyTorch", bytes_text(outside_bytes));
  const std::string capacity = bytes_text(capacity_bytes);
  if (report.out_of_memory_count > 0) {
    return {.line = out_of_memory_line(report, outside_bytes, failure),
            .exit_code = kDoesNotFit,
            .is_out_of_memory = true};
  }
  if (allocated_bytes > capacity_bytes && !may_be_lower(report)) {
    return {.line = fmt::format("does not fit: takes {} or more ({}), but there are {}{}",
                                bytes_text(allocated_bytes), outside, capacity,
                                failure.empty() ? "" : "; " + failure),
            .exit_code = kDoesNotFit};
  }
  const std::string why = why_incomplete(report, facts, failure);
  if (!why.empty()) return no_verdict(report, outside_bytes, why);
  if (report.main_space() == nullptr) {
    return {.line = "no verdict: nothing was allocated on the GPU", .exit_code = kNotRecorded};
  }
  if (facts.retries > 0 || reserved_bytes > capacity_bytes) {
    return {.line = fmt::format("fits with retries, each a stall: without them it takes {} or more "
                                "({}), but there are {}",
                                bytes_text(reserved_bytes), outside, capacity),
            .exit_code = kFitsWithRetries};
  }
  RecordVerdict fits{.line = fmt::format("fits: {} of {} ({}), {} free", bytes_text(reserved_bytes),
                                         capacity, outside,
                                         bytes_text(capacity_bytes - reserved_bytes))};
  if (facts.shapes > 0) {
    fits.line += "; shapes depended on values, which are 0 here: it may take more";
  }
  return fits;
}

int exit_code_of(const CommandEnd& end, const std::vector<RecordVerdict>& verdicts,
                 bool is_out_of_memory) {
  if (is_out_of_memory || std::ranges::any_of(verdicts, &RecordVerdict::is_out_of_memory)) {
    return kDoesNotFit;
  }
  if (verdicts.empty()) return end.is_by_signal() ? end.exit_code : kNotRecorded;
  if (end.is_failure()) return end.exit_code;
  for (const int code : {kDoesNotFit, kNotRecorded, kFitsWithRetries}) {
    const auto has_it = [&](const RecordVerdict& verdict) { return verdict.exit_code == code; };
    if (std::ranges::any_of(verdicts, has_it)) return code;
  }
  return 0;
}

}  // namespace shardlens::runtime
