#include "profiler/record/time/predicted_time.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/process/host_limits.h"

namespace shardlens::profiler {

namespace {

using Json = nlohmann::ordered_json;

/// Null for a rate that is not known.
Json rate_json(double rate) { return rate > 0 ? Json(rate) : Json(); }

}  // namespace

std::optional<PredictedTime> slowest_time(const std::vector<std::string>& recordings,
                                          const PredictTime& predict) {
  std::optional<PredictedTime> slowest;
  for (const std::string& recording : recordings) {
    PredictedTime time = predict(recording);
    if (!time.is_known()) return time;
    if (!slowest || time.seconds > slowest->seconds) slowest = std::move(time);
  }
  return slowest;
}

std::string time_text(const std::optional<PredictedTime>& time) {
  return time && time->is_known() ? time->text : "-";
}

std::string rate_text(const std::optional<PredictedTime>& time) {
  if (!time || !time->is_known()) return {};
  if (time->tokens_a_second > 0) return fmt::format("{:.0f} tokens", time->tokens_a_second);
  if (time->samples_a_second > 0) return fmt::format("{:.4g} samples", time->samples_a_second);
  return {};
}

std::vector<std::string> time_doubts(const std::optional<PredictedTime>& time) {
  if (!time) return {};
  if (!time->is_known()) return {"no step time: " + time->why};
  std::vector<std::string> doubts;
  for (const std::string& doubt : time->doubts) doubts.push_back("step time: " + doubt);
  return doubts;
}

std::string times_basis_text(const std::vector<std::optional<PredictedTime>>& times) {
  const auto known = std::ranges::find_if(
      times, [](const auto& time) { return time.has_value() && time->is_known(); });
  if (known == times.end()) return {};
  return fmt::format(
      "  step times: predicted, {}; nine of ten are expected within the band; what the host takes "
      "was measured on this one ({})\n",
      (*known)->basis, host_processor());
}

Json predicted_time_json(const std::optional<PredictedTime>& time) {
  if (!time) return nullptr;
  if (!time->is_known()) return {{"seconds", nullptr}, {"why", time->why}};
  return {{"seconds", time->seconds},
          {"low_seconds", time->seconds * (1 - time->error)},
          {"high_seconds", time->seconds * (1 + time->error)},
          {"tokens_a_second", rate_json(time->tokens_a_second)},
          {"samples_a_second", rate_json(time->samples_a_second)},
          {"basis", time->basis},
          {"host", host_processor()},
          {"doubts", time->doubts}};
}

}  // namespace shardlens::profiler
