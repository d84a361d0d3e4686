#include "profiler/record/time/time_change.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace shardlens::profiler {

namespace {

constexpr double kSmallPart = 0.01;  // of a step, which has no word

double growth_percent(double before, double after) { return 100 * (after / before - 1); }

double part_seconds(const PredictedTime& time, const std::string& part) {
  const auto found = std::ranges::find(time.parts, part, &TimePart::name);
  return found == time.parts.end() ? 0 : found->seconds;
}

}  // namespace

std::optional<TimeChange> time_change(const std::optional<PredictedTime>& before,
                                      const std::optional<PredictedTime>& after) {
  if (!before || !after || !before->is_known() || !after->is_known()) return std::nullopt;
  return TimeChange{
      .percent = growth_percent(before->seconds, after->seconds),
      .certain_percent = growth_percent(before->slow_host_seconds, after->fast_host_seconds)};
}

std::vector<std::string> doubts_of_change(const std::optional<PredictedTime>& before,
                                          const std::optional<PredictedTime>& after,
                                          double limit_percent) {
  if (!after || !after->is_known() || !before) return {};
  if (!before->is_known()) {
    return {"step time: nothing to compare with, make the baseline with --time: " + before->why};
  }
  const TimeChange change = *time_change(before, after);
  if (change.percent <= limit_percent || change.is_slower_than(limit_percent)) return {};
  return {fmt::format(
      "step time: {:+.1f} % is not counted, since the host's part of a step, measured in each run, "
      "may differ by {:.0f} %",
      change.percent, 100 * kHostNoise)};
}

std::string longer_parts_text(const PredictedTime& before, const PredictedTime& after) {
  std::vector<std::pair<double, std::string>> longer;
  for (const TimePart& part : after.parts) {
    const double growth = part.seconds - part_seconds(before, part.name);
    if (growth > kSmallPart * before.seconds) longer.emplace_back(growth, part.name);
  }
  std::ranges::stable_sort(longer, std::ranges::greater(),
                           [](const auto& one) { return one.first; });
  std::string text;
  for (const auto& [seconds, name] : longer) {
    text += fmt::format("{}+{:.3g} ms {}", text.empty() ? "" : ", ", seconds * 1e3, name);
  }
  return text;
}

}  // namespace shardlens::profiler
