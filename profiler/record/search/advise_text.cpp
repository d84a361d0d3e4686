#include <fmt/format.h>

#include <array>
#include <nlohmann/json.hpp>

#include "base/strict_json.h"
#include "base/units.h"
#include "profiler/record/search/advise.h"
#include "profiler/record/search/command_again.h"
#include "profiler/record/search/run_doubts.h"

namespace shardlens::profiler {

namespace {

using Json = nlohmann::ordered_json;

std::string signed_bytes(int64_t bytes) {
  return fmt::format("{}{}", bytes < 0 ? "-" : "+", bytes_text(bytes < 0 ? -bytes : bytes));
}

std::string costs_text(const RecordOptions& options) {
  std::string text;
  for (const Lever& lever : options.levers) {
    text += fmt::format("{}{}", text.empty() ? "" : "; ", lever_info(lever.name).costs);
  }
  return text;
}

/// Returns the columns of time for a row or for the head; "" if times are not predicted.
std::string time_columns(const Findings& advice, const std::string& time, const std::string& rate) {
  return advice.base.time ? fmt::format(" {:>15} {:>16}", time, rate) : std::string();
}

std::string row_of(const Findings& advice, const VariantResult& result) {
  std::string name =
      result.options.levers.empty() ? "as it is" : levers_text(result.options.levers);
  if (result.has_retries) name += ", with retries of the allocator";
  if (result.outcome != VariantOutcome::measured) {
    const std::string_view failed = result.outcome == VariantOutcome::failed ? "failed, " : "";
    return fmt::format("  {:<6} {:<47}{}  {}: {}{}\n", "-", "", time_columns(advice, "", ""), name,
                       failed, result_text(result));
  }
  const int64_t change = result.device_bytes() - advice.base.device_bytes();
  return fmt::format(
      "  {:<6} {:>11} {:>11} {:>11} {:>11}{}  {}\n", result.fits(advice.fit_bytes) ? "fits" : "no",
      bytes_text(result.device_bytes()), &result == &advice.base ? "" : signed_bytes(change),
      bytes_text(result.allocated_bytes), bytes_text(result.reserved_bytes),
      time_columns(advice, time_text(result.time), rate_text(result.time)), name);
}

/// Returns the places where a variant's levers acted, with the code to write there.
std::string places_of(const VariantResult& result) {
  std::string text;
  for (const Lever& lever : result.options.levers) {
    for (const LeverSite& site : lever_sites(result.accounts)) {
      if (!acts_at(site, lever)) continue;
      text += fmt::format("  {:<32} {}\n  {:<32}   {}\n", lever_text(lever), site.code, "",
                          site.where.empty() ? "before the program starts" : site.where);
    }
    text += fmt::format("  {:<32}   costs {}\n", "", lever_info(lever.name).costs);
  }
  return text;
}

/// Says which set is fastest, of a program that fits as it is; "" unless that was asked for.
std::string faster_text(const Findings& advice) {
  if (!advice.by_time) return {};
  const VariantResult* const set = advice.advised();
  if (set == nullptr) return "  no set that was tried is clearly faster and fits\n";
  const double part = *advice.comparable_seconds(*set) / *advice.comparable_seconds(advice.base);
  return fmt::format("  with {} it is faster: {:.0f} % of the time for as much data\n",
                     levers_text(set->options.levers), 100 * part);
}

std::string verdict_of(const Findings& advice) {
  const VariantResult* const best = advice.best();
  if (advice.base.outcome != VariantOutcome::measured) {
    return fmt::format("no advice: the program as it is: {}\n", advice.base.why);
  }
  const std::string as_it_is =
      fmt::format("as it is, the program takes {} of {}", bytes_text(advice.base.device_bytes()),
                  bytes_text(advice.fit_bytes));
  const auto fits = [](const VariantResult& result) {
    return result.has_retries ? ": fits only with retries of the allocator\n" : ": fits\n";
  };
  if (advice.base.fits(advice.fit_bytes)) {
    return as_it_is + fits(advice.base) + faster_text(advice);
  }
  if (best == nullptr) {
    return fmt::format("{}: does not fit, nor does a set of levers that was tried\n", as_it_is);
  }
  return fmt::format("{}: does not fit; with {} it takes {}{}", as_it_is,
                     levers_text(best->options.levers), bytes_text(best->device_bytes()),
                     fits(*best));
}

std::string times_text(const Findings& advice) {
  std::vector<std::optional<PredictedTime>> times = {advice.base.time};
  std::vector<DoubtedRun> doubted = {{.name = "as it is", .doubts = time_doubts(advice.base.time)}};
  for (const VariantResult& result : advice.tried) {
    if (!result.time) continue;
    times.push_back(result.time);
    doubted.push_back(
        {.name = levers_text(result.options.levers), .doubts = time_doubts(result.time)});
  }
  return times_basis_text(times) + doubts_text(doubted);
}

std::string doubts_of(const Findings& advice) {
  std::string text;
  const bool has_goal = !advice.base.fits(advice.fit_bytes);
  if (advice.was_interrupted) {
    text += fmt::format("  in doubt: interrupted; {} more sets were to be run\n", advice.left_out);
  }
  if (advice.steps_of_sets && !advice.tried.empty()) {
    text += fmt::format(
        "  sets were ended after {} steps, from where those of the program as it is are alike{}\n",
        *advice.steps_of_sets, advice.advised() == nullptr ? "" : "; the best ran to its end");
  }
  if (advice.by_time && advice.best() != nullptr) {
    text +=
        "  the first that fits is the fastest of those that were run; others may be faster: "
        "--levers and --most say which are\n";
  }
  if (advice.best() != nullptr && has_goal && advice.is_complete) {
    text += fmt::format(
        "  no cheaper set of up to {} levers that helped alone is known to fit: each was run, or "
        "is part of one that does not fit\n",
        advice.most_levers);
  }
  return text;
}

std::string not_applicable_text(const Findings& advice) {
  if (advice.not_applicable.empty()) return {};
  std::string text = "\nnot tried, or without effect\n";
  for (const UntriedLever& one : advice.not_applicable) {
    text += fmt::format("  {:<32} {}\n", lever_text(one.lever), one.why);
  }
  return text;
}

Json json_of(const Findings& advice, const VariantResult& result) {
  constexpr std::array kNames = {"measured", "out_of_memory", "failed", "idle"};
  Json levers = Json::array(), places = Json::array();
  for (const Lever& lever : result.options.levers) {
    levers.push_back(lever_text(lever));
    for (const LeverSite& site : lever_sites(result.accounts)) {
      if (!acts_at(site, lever)) continue;
      places.push_back({{"lever", lever_text(lever)}, {"where", site.where}, {"code", site.code}});
    }
  }
  Json json = {{"levers", levers},
               {"outcome", kNames[static_cast<size_t>(result.outcome)]},
               {"was_forked", result.was_forked},
               {"fits", result.fits(advice.fit_bytes)},
               {"has_retries", result.has_retries},
               {"run", result.options.out}};
  if (result.outcome == VariantOutcome::measured) {
    json["device_bytes"] = result.device_bytes();
    json["allocated_bytes"] = result.allocated_bytes;
    json["reserved_bytes"] = result.reserved_bytes;
    json["beside_pytorch_bytes"] = result.outside_bytes;
  } else {
    json["why"] = result.why;
  }
  json["time"] = predicted_time_json(result.time);
  json["costs"] = costs_text(result.options);
  json["edits"] = places;
  json["command"] = command_again(result.options, result.limit_bytes(advice.fit_bytes));
  return json;
}

}  // namespace

std::string findings_text(const AdviseOptions& options, const Findings& advice) {
  std::string text = verdict_of(advice) + doubts_of(advice);
  if (advice.base.outcome != VariantOutcome::measured) return text;
  text += fmt::format("\n  {:<6} {:>11} {:>11} {:>11} {:>11}{}  {}\n", "", "takes", "change",
                      "allocated", "reserved", time_columns(advice, "a step", "a second"), "with");
  text += row_of(advice, advice.base);
  for (const VariantResult& result : advice.tried) text += row_of(advice, result);
  text += times_text(advice);
  if (const VariantResult* const best = advice.advised()) {
    text += "\nto write\n" + places_of(*best) + "\nagain\n  " +
            command_again(best->options, best->limit_bytes(advice.fit_bytes)) + "\n";
  }
  text += not_applicable_text(advice);
  return text + fmt::format("\nnext\n  shardlens view {}: see all runs side by side\n",
                            options.record.out);
}

std::string findings_json(const AdviseOptions& options, const Findings& advice) {
  Json json = {{"schema", "shardlens.advice/1"}, {"out", options.record.out},
               {"fit_bytes", advice.fit_bytes},  {"as_it_is", json_of(advice, advice.base)},
               {"tried", Json::array()},         {"not_tried", Json::array()}};
  for (const VariantResult& result : advice.tried) json["tried"].push_back(json_of(advice, result));
  for (const UntriedLever& one : advice.not_applicable) {
    json["not_tried"].push_back({{"lever", lever_text(one.lever)}, {"why", one.why}});
  }
  json["by"] = advice.by_time ? "time" : "cost";
  json["is_complete"] = advice.is_complete;
  json["most_levers"] = advice.most_levers;
  json["steps_of_sets"] = advice.steps_of_sets ? Json(*advice.steps_of_sets) : Json();
  json["was_interrupted"] = advice.was_interrupted;
  json["left_out"] = advice.left_out;
  return json_text(json);
}

}  // namespace shardlens::profiler
