#include "runtime/record/record_verdict.h"

#include <fmt/format.h>

#include <filesystem>

#include "input/input_file.h"
#include "input/limits.h"
#include "input/strict_json.h"
#include "profiler/units.h"

namespace shardlens::runtime {

namespace {

using profiler::bytes_text;

constexpr int kDoesNotFit = 3;
constexpr int kFitsWithRetries = 4;

}  // namespace

RecordFacts read_record_facts(const std::string& recording) {
  const auto file = std::filesystem::path(recording).replace_extension(".json");
  const auto json = input::find_json(input::read_file(file, input::kDescription.bytes).text);
  if (!json || !json->is_object()) return {};
  const auto read = json->value("values_read", nlohmann::json());
  return {.retries = input::whole_in(*json, "retries").value_or(0),
          .steps = input::whole_in(*json, "steps").value_or(0),
          .shapes = input::whole_in(read, "shapes").value_or(0),
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
