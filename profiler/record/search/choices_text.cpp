#include <fmt/format.h>

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string>

#include "base/strict_json.h"
#include "base/units.h"
#include "profiler/record/search/choices.h"
#include "profiler/record/search/command_again.h"
#include "profiler/record/search/run_doubts.h"

namespace shardlens::profiler {

namespace {

using Json = nlohmann::ordered_json;

/// Returns the time of a step as a part of that of the first run; nothing if one is not known.
std::optional<double> relative_time(const ChosenRun& first, const ChosenRun& run) {
  const auto &one = first.result.time, &other = run.result.time;
  if (!one || !other || !one->is_known() || !other->is_known()) return std::nullopt;
  return other->seconds / one->seconds;
}

std::string setting_row(const ChosenRun& first, const ChosenRun& run) {
  const auto time = relative_time(first, run);
  return fmt::format("  {:>12}  {:>9}  {}\n", bytes_text(run.result.device_bytes()),
                     time ? fmt::format("{:.2f}x", *time) : "-", flags_text(run.flags));
}

/// Counts the others by the first words of their reasons.
std::string others_text(const RankedSettings& choices) {
  std::map<std::string, int> kinds;
  for (const ChosenRun& run : choices.runs) {
    if (run.rejected) ++kinds[run.rejected->substr(0, run.rejected->find(':'))];
  }
  if (kinds.empty()) return {};
  std::string text = "\nthe others (--json has each)\n";
  for (const auto& [kind, count] : kinds) text += fmt::format("  {:>6}  {}\n", count, kind);
  return text;
}

std::string front_doubts(const std::vector<const ChosenRun*>& front) {
  std::vector<std::optional<PredictedTime>> times;
  std::vector<DoubtedRun> doubted;
  for (const ChosenRun* const run : front) {
    times.push_back(run->result.time);
    doubted.push_back(doubted_run(flags_text(run->flags), run->result));
  }
  return times_basis_text(times) + doubts_text(doubted);
}

std::string run_command(const RankedSettings& choices, const ChosenRun& run) {
  return command_again(run.result.options, choices.budget_bytes);
}

/// Returns the values of flags by name: {"recompute": "full", "fused": true}.
Json values_json(const std::string& flags) {
  Json values = Json::object();
  std::string name;
  std::istringstream words(flags);
  for (std::string word; words >> word;) {
    const bool is_flag = word.starts_with("--");
    if (is_flag) name = word.substr(2);
    values[name] = is_flag ? Json(true) : Json(word);
  }
  return values;
}

Json front_json(const RankedSettings& choices, const ChosenRun& first, const ChosenRun& run) {
  const VariantResult& result = run.result;
  const auto time = relative_time(first, run);
  return {{"flags", flags_text(run.flags)},
          {"device_bytes", result.device_bytes()},
          {"step_time_basis", time ? Json(result.time->basis) : Json()},
          {"relative_step_time", time ? Json(*time) : Json()},
          {"config", values_json(run.flags)},
          {"allocated_bytes", result.allocated_bytes},
          {"reserved_bytes", result.reserved_bytes},
          {"time", predicted_time_json(result.time)},
          {"doubts", result.doubts},
          {"run", result.options.out},
          {"command", run_command(choices, run)}};
}

}  // namespace

std::string choices_text(const ChoiceOptions& options, const RankedSettings& choices) {
  const auto front = choices.front();
  std::string text =
      fmt::format("{} of {} settings {} worth considering within {}\n\n", front.size(),
                  choices.runs.size() + choices.left_out, front.size() == 1 ? "is" : "are",
                  bytes_text(choices.budget_bytes));
  if (!front.empty()) text += fmt::format("  {:>12}  {:>9}  flags\n", "memory", "step time");
  for (const ChosenRun* const run : front) text += setting_row(*front.front(), *run);
  text += front_doubts(front);
  if (choices.left_out > 0) {
    text +=
        fmt::format("  in doubt: interrupted; {} more settings were to be run\n", choices.left_out);
  }
  text += others_text(choices);
  if (!front.empty()) text += "\nagain\n";
  for (const ChosenRun* const run : front) text += "  " + run_command(choices, *run) + "\n";
  return text + fmt::format("\nnext\n  shardlens view {}: see all runs side by side\n",
                            options.record.out);
}

std::string choices_json(const ChoiceOptions& options, const RankedSettings& choices) {
  const auto front = choices.front();
  Json json = {{"schema", "shardlens.search/1"},
               {"out", options.record.out},
               {"by", options.by_time ? "time" : "cost"},
               {"budget_bytes", choices.budget_bytes},
               {"candidates", choices.runs.size() + choices.left_out},
               {"left_out", choices.left_out},
               {"front", Json::array()},
               {"rejected", Json::array()}};
  for (const ChosenRun* const run : front) {
    json["front"].push_back(front_json(choices, *front.front(), *run));
  }
  for (const ChosenRun& run : choices.runs) {
    if (!run.rejected) continue;
    json["rejected"].push_back({{"flags", flags_text(run.flags)},
                                {"reason", *run.rejected},
                                {"run", run.result.options.out},
                                {"command", run_command(choices, run)}});
  }
  return json_text(json);
}

}  // namespace shardlens::profiler
