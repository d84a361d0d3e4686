#include "runtime/record/record_verdict.h"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "profiler/units.h"

namespace shardlens::runtime {

namespace {

using profiler::bytes_text;

constexpr int kDoesNotFit = 3;
constexpr int kFitsWithRetries = 4;

}  // namespace

RecordFacts read_record_facts(const std::string& recording) {
  std::ifstream file(std::filesystem::path(recording).replace_extension(".json"));
  const auto json = nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return {};
  return {.retries = json.value("retries", int64_t{0}),
          .steps = json.value("steps", int64_t{0}),
          .shapes = json.value(nlohmann::json::json_pointer("/values_read/shapes"), int64_t{0}),
          .is_known = true};
}

RecordVerdict verdict_of(const profiler::RankReport& report, const RecordFacts& facts,
                         int64_t outside_bytes) {
  const int64_t capacity_bytes = report.header.capacity_bytes;
  const int64_t allocated_bytes = report.peak_bytes() + outside_bytes;
  const int64_t reserved_bytes = report.reserved_peak_bytes().value_or(0) + outside_bytes;
  const std::string outside = fmt::format("{} of it beside PyTorch", bytes_text(outside_bytes));
  const std::string capacity = bytes_text(capacity_bytes);
  if (report.out_of_memory_count > 0 || allocated_bytes > capacity_bytes) {
    return {.line = fmt::format("does not fit: takes {} or more ({}), but there are {}",
                                bytes_text(allocated_bytes), outside, capacity),
            .exit_code = kDoesNotFit};
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

}  // namespace shardlens::runtime
