#include "planner/time/time_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.h"
#include "planner/time/tasks/simulated_events.h"

namespace shardlens::planner {

namespace {

constexpr double kLeastPart = 0.005;  // of a step that has a word in the text

/// The words of WorkClass, in sentences.
constexpr std::array<std::string_view, kWorkClasses> kClassNames = {
    "matrix products", "attention",
    "convolutions",    "kernels that move memory",
    "unknown kernels", "exposed communication",
    "exposed copies"};

std::string duration_text(double seconds) {
  if (seconds >= 10) return fmt::format("{:.1f} s", seconds);
  if (seconds >= 1) return fmt::format("{:.2f} s", seconds);
  if (seconds >= 0.1) return fmt::format("{:.0f} ms", seconds * 1e3);
  if (seconds >= 1e-3) return fmt::format("{:.{}f} ms", seconds * 1e3, seconds >= 0.01 ? 1 : 2);
  return fmt::format("{:.0f} us", seconds * 1e6);
}

/// Returns "matrix products 61 %, waiting for the host 20 %, ...", the largest first.
std::string parts_text(const StepTime& time) {
  std::string text;
  for (const auto& [name, seconds] : step_parts(time)) {
    if (seconds < kLeastPart * time.seconds) continue;
    text +=
        fmt::format("{}{} {:.0f} %", text.empty() ? "" : ", ", name, 100 * seconds / time.seconds);
  }
  return text;
}

/// An event that a program records, and when it happens.
struct ListedEvent {
  size_t item = 0;
  double seconds = 0;
};

std::vector<ListedEvent> events_of(const profiler::WorkTrace& trace, const Gpu& gpu,
                                   const StepTimeOptions& options) {
  SimulatedEvents events(trace, gpu, options);
  std::vector<ListedEvent> listed;
  for (size_t i = 0; i < trace.items.size(); ++i) {
    if (trace.work_of(trace.items[i]).kind != profiler::WorkKind::event_record) continue;
    if (const auto seconds = events.seconds_of(static_cast<int64_t>(i))) {
      listed.push_back({i, *seconds});
    }
  }
  return listed;
}

const std::string& operator_of(const profiler::WorkTrace& trace, const ListedEvent& event) {
  return trace.strings[trace.calls[trace.work_of(trace.items[event.item]).call].name];
}

std::string_view basis_word(bool is_calibrated) { return is_calibrated ? "calibrated" : "cold"; }

/// Null if it is not known what a step trains on.
nlohmann::json a_second(double count, const StepTime& time) {
  return count > 0 && time.seconds > 0 ? nlohmann::json(count / time.seconds) : nlohmann::json();
}

}  // namespace

std::vector<std::pair<std::string_view, double>> step_parts(const StepTime& time) {
  std::vector<std::pair<std::string_view, double>> parts = {
      {"waiting for the host", time.waiting_for_host},
      {"waiting for other ranks", time.waiting_for_ranks}};
  for (size_t i = 0; i < kWorkClasses; ++i) parts.emplace_back(kClassNames[i], time.by_class[i]);
  std::ranges::stable_sort(parts, std::ranges::greater(),
                           [](const auto& part) { return part.second; });
  return parts;
}

std::string basis_of(const StepTime& time) { return std::string(basis_word(time.is_calibrated)); }

std::string step_time_text(const StepTime& time, const Gpu& gpu) {
  check(time.seconds > 0, "the time of no step");
  std::string text = fmt::format(
      "step time: {} on {} ({} to {}), {}\n", duration_text(time.seconds), gpu.display_name,
      duration_text(time.low()), duration_text(time.high()), basis_of(time));
  text += fmt::format("  it goes to: {}\n", parts_text(time));
  if (time.flops > 0) {
    text += fmt::format("  {:.3g} TFLOP in {} launches: {:.1f} % of the GPU's rate\n",
                        time.flops * 1e-12, time.kernels, 100 * time.used_flops());
  }
  if (time.batch.tokens > 0) {
    text += fmt::format("  {:.0f} tokens a second on each GPU\n", time.batch.tokens / time.seconds);
  } else if (time.batch.samples > 0) {
    text +=
        fmt::format("  {:.4g} samples a second on each GPU\n", time.batch.samples / time.seconds);
  }
  if (!time.stands_for.empty()) {
    text += fmt::format("  a step is taken to be {}\n", time.stands_for);
  }
  for (const std::string& doubt : time.doubts) text += "  in doubt: " + doubt + "\n";
  return text;
}

std::string time_with_band(const StepTime& time) {
  return fmt::format("{} +-{:.0f} %", duration_text(time.seconds), 100 * time.error);
}

nlohmann::ordered_json step_time_json(const StepTime& time, const Gpu& gpu) {
  nlohmann::ordered_json by_class, work;
  for (size_t i = 0; i < kWorkClasses; ++i) {
    by_class[std::string(kWords<WorkClass>[i])] = time.by_class[i];
    work[std::string(kWords<WorkClass>[i])] = time.work_by_class[i];
  }
  return {{"gpu", gpu.name},
          {"basis", basis_of(time)},
          {"is_measured", time.is_measured},
          {"seconds", time.seconds},
          {"low_seconds", time.low()},
          {"high_seconds", time.high()},
          {"goes_to_seconds", by_class},
          {"waiting_for_host_seconds", time.waiting_for_host},
          {"waiting_for_ranks_seconds", time.waiting_for_ranks},
          {"work_seconds", work},
          {"host_seconds", time.host_seconds},
          {"model_flops", time.flops},
          {"mfu", time.used_flops()},
          {"launches", time.kernels},
          {"tokens_a_second", a_second(time.batch.tokens, time)},
          {"samples_a_second", a_second(time.batch.samples, time)},
          {"rounds", time.rounds},
          {"has_marked_steps", time.are_steps},
          {"step_is", time.stands_for.empty() ? nlohmann::json() : nlohmann::json(time.stands_for)},
          {"doubts", time.doubts}};
}

std::string event_times_text(const profiler::WorkTrace& trace, const Gpu& gpu,
                             const StepTimeOptions& options) {
  constexpr size_t kMostShown = 40;
  const std::vector<ListedEvent> events = events_of(trace, gpu, options);
  std::string text =
      fmt::format("{} events, as predicted on {}, {}\n  {:>10} {:>7} {:>14} {:>14}  within\n",
                  events.size(), gpu.display_name, basis_word(options.calibration != nullptr),
                  "item", "stream", "happens, ms", "later by, ms");
  for (size_t i = 0; i < std::min(events.size(), kMostShown); ++i) {
    const double before = i == 0 ? 0 : events[i - 1].seconds;
    text += fmt::format("  {:>10} {:>7} {:>14.4f} {:>14.4f}  {}\n", events[i].item,
                        trace.items[events[i].item].stream, events[i].seconds * 1e3,
                        (events[i].seconds - before) * 1e3, operator_of(trace, events[i]));
  }
  if (events.size() <= kMostShown) return text;
  return text + fmt::format("  ... {} more: --json has all\n", events.size() - kMostShown);
}

nlohmann::ordered_json event_times_json(const profiler::WorkTrace& trace, const Gpu& gpu,
                                        const StepTimeOptions& options) {
  nlohmann::ordered_json json = {{"gpu", gpu.name},
                                 {"basis", basis_word(options.calibration != nullptr)},
                                 {"events", nlohmann::json::array()}};
  for (const ListedEvent& event : events_of(trace, gpu, options)) {
    json["events"].push_back({{"item", event.item},
                              {"stream", trace.items[event.item].stream},
                              {"operator", operator_of(trace, event)},
                              {"seconds", event.seconds}});
  }
  return json;
}

std::string world_time_text(const WorldTime& world, const std::vector<int32_t>& numbers,
                            const Gpu& gpu) {
  const StepTime& slowest = world.ranks[world.slowest];
  std::string text =
      fmt::format("{}  of rank {}, the slowest of {} that were simulated together\n",
                  step_time_text(slowest, gpu), numbers[world.slowest], world.ranks.size());
  for (size_t i = 0; i < world.ranks.size(); ++i) {
    const StepTime& rank = world.ranks[i];
    const double waits = rank.seconds > 0 ? 100 * rank.waiting_for_ranks / rank.seconds : 0;
    text += fmt::format("  rank {:<6} {:>12}, {:.0f} % waiting for other ranks\n", numbers[i],
                        duration_text(rank.seconds), waits);
  }
  for (const std::string& doubt : world.doubts) text += "  in doubt: " + doubt + "\n";
  return text;
}

nlohmann::ordered_json world_time_json(const WorldTime& world, const std::vector<int32_t>& numbers,
                                       const Gpu& gpu) {
  nlohmann::ordered_json json = step_time_json(world.ranks[world.slowest], gpu);
  json["rank"] = numbers[world.slowest];
  json["ranks"] = nlohmann::ordered_json::array();
  for (size_t i = 0; i < world.ranks.size(); ++i) {
    nlohmann::ordered_json rank = step_time_json(world.ranks[i], gpu);
    rank["rank"] = numbers[i];
    json["ranks"].push_back(std::move(rank));
  }
  json["meetings"] = world.meetings;
  for (const std::string& doubt : world.doubts) json["doubts"].push_back(doubt);
  return json;
}

}  // namespace shardlens::planner
