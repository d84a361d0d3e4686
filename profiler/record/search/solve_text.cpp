#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <utility>

#include "base/process/command_line.h"
#include "base/strict_json.h"
#include "base/units.h"
#include "profiler/record/search/part.h"
#include "profiler/record/search/run_doubts.h"
#include "profiler/record/search/solve.h"
#include "profiler/record/search/split_flags.h"

namespace shardlens::profiler {

namespace {

using Json = nlohmann::ordered_json;

std::string run_row(const std::string& values, const VariantResult& result) {
  constexpr std::array kWords = {"fits", "does not fit", "failed", "nothing recorded"};
  const char* const word = kWords[static_cast<size_t>(result.outcome)];
  if (result.outcome != VariantOutcome::measured) {
    const std::string why =
        result.outcome == VariantOutcome::out_of_memory ? "" : ": " + result.why;
    return fmt::format("  {:<28} {}{}\n", values, word, why);
  }
  std::string times = result.time ? fmt::format(" {:>15}", time_text(result.time)) : "";
  const std::string rate = rate_text(result.time);
  if (!rate.empty()) times += fmt::format(" {:>16}", rate);
  return fmt::format("  {:<28} {:<12} {:>11} {:>11} {:>11}{}\n", values, word,
                     bytes_text(result.device_bytes()), bytes_text(result.allocated_bytes),
                     bytes_text(result.reserved_bytes), times);
}

std::string run_head(const RecordOptions& options) {
  const std::string times =
      options.traces_work ? fmt::format(" {:>15} {:>16}", "a step", "a second") : "";
  return fmt::format("  {:<28} {:<12} {:>11} {:>11} {:>11}{}\n", "", "", "takes", "allocated",
                     "reserved", times);
}

using Times = std::vector<std::optional<PredictedTime>>;

/// Names the run that trains on most in a second; "" if fewer than two have a rate, or one that has
/// a time has no rate.
std::string fastest_text(const std::vector<DoubtedRun>& runs, const Times& times) {
  for (double PredictedTime::*rate :
       {&PredictedTime::tokens_a_second, &PredictedTime::samples_a_second}) {
    const auto rate_of = [rate](const std::optional<PredictedTime>& time) {
      return time && time->is_known() ? *time.*rate : -1;  // -1: it has no time
    };
    const bool is_known = std::ranges::all_of(times, [&](auto& one) { return rate_of(one) != 0; });
    const auto rates = std::ranges::count_if(times, [&](auto& one) { return rate_of(one) > 0; });
    if (!is_known || rates < 2) continue;
    const auto best = std::ranges::max_element(times, {}, rate_of);
    return fmt::format("  most a second: {}, {}\n",
                       runs[static_cast<size_t>(best - times.begin())].name, rate_text(*best));
  }
  return {};
}

/// The rows of a table and what is said below them.
class RunTable {
 public:
  explicit RunTable(const RecordOptions& options) : text_(run_head(options)) {}

  void add(const std::vector<PlacedValue>& values, const VariantResult& result) {
    const std::string name = values_text(values);
    text_ += run_row(name, result);
    doubted_.push_back(doubted_run(name, result));
    times_.push_back(result.time);
  }

  std::string text() const {
    return text_ + fastest_text(doubted_, times_) + times_basis_text(times_) +
           doubts_text(doubted_);
  }

 private:
  std::string text_;
  std::vector<DoubtedRun> doubted_;
  Times times_;
};

Json run_json(const std::vector<PlacedValue>& values, const VariantResult& result) {
  constexpr std::array kNames = {"measured", "out_of_memory", "failed", "idle"};
  Json json = {
      {"values", Json::object()},          {"outcome", kNames[static_cast<size_t>(result.outcome)]},
      {"was_forked", result.was_forked},   {"run", result.options.out},
      {"bands", bands_json(result.bands)}, {"doubts", result.doubts}};
  for (const auto& [name, value] : values) json["values"][name] = value;
  if (result.outcome == VariantOutcome::measured) {
    json["device_bytes"] = result.device_bytes();
    json["allocated_bytes"] = result.allocated_bytes;
    json["reserved_bytes"] = result.reserved_bytes;
    json["time"] = predicted_time_json(result.time);
  } else {
    json["why"] = result.why;
  }
  return json;
}

int64_t parse_value(std::string_view text) {
  if (const auto value = count_in(text)) return *value;
  throw std::invalid_argument(
      fmt::format("--values {}: give whole numbers from 1, such as batch=1,2,4", text));
}

/// Parses "batch=1,2,4".
std::pair<std::string, std::vector<int64_t>> parse_values(const std::string& text) {
  const size_t equals = std::min(text.find('='), text.size());
  std::vector<int64_t> values;
  std::string_view rest = std::string_view(text).substr(std::min(equals + 1, text.size()));
  while (!rest.empty()) {
    const size_t end = std::min(rest.find(','), rest.size());
    values.push_back(parse_value(rest.substr(0, end)));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  if (values.empty()) parse_value(text);
  return {text.substr(0, equals), values};
}

void check_choices(const SweepOptions& options, bool has_values) {
  if (options.choices.empty() && options.by_time) {
    throw std::invalid_argument("--by time: only orders --choices; add some, or remove it");
  }
  if (!options.choices.empty() && has_values) {
    throw std::invalid_argument(
        "--choices: cannot be combined with --values or --part; remove one");
  }
}

std::string listed(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "{" : ", {") + name + "}";
  return text.empty() ? "none" : text;
}

constexpr const char* kOtherFlags =
    "It takes the other flags of `shardlens record`, too: --world, --rank, --steps, --with, "
    "...\n\n";

}  // namespace

SolveOptions parse_solve_options(const std::vector<std::string>& arguments) {
  SolveOptions options;
  CLI::App app;
  app.set_help_flag();
  app.add_flag("--help,-h", options.help);
  app.add_flag("--json", options.prints_json);
  app.add_option("--from", options.from)->check(positive_number());
  app.add_option("--most", options.most)->check(positive_number());
  const std::vector<std::string> others = parse_own_flags(app, arguments);
  if (options.help) return options;
  options.record = parse_simulated("solve", others);
  const std::vector<std::string> names = placeholders_in(options.record.command);
  if (names.size() != 1) {
    throw std::invalid_argument(fmt::format(
        "the command has {} placeholders ({}); give one, such as --batch {{batch}}; `shardlens "
        "sweep` takes several",
        names.size(), listed(names)));
  }
  if (options.from > options.most) {
    throw std::invalid_argument(
        fmt::format("--from {} --most {}: the smallest number is above the largest; give a "
                    "smaller --from",
                    options.from, options.most));
  }
  options.name = names.front();
  return options;
}

SweepOptions parse_sweep_options(const std::vector<std::string>& arguments) {
  SweepOptions options;
  CLI::App app;
  std::vector<std::string> values, choices;
  std::string part, by;
  app.set_help_flag();
  app.add_flag("--help,-h", options.help);
  app.add_flag("--json", options.prints_json);
  app.add_option("--values", values)->allow_extra_args(false);
  app.add_option("--choices", choices)->allow_extra_args(false);
  app.add_option("--by", by);
  app.add_option("--part", part);
  const std::vector<std::string> others = parse_own_flags(app, arguments);
  if (options.help) return options;
  options.record = parse_simulated("sweep", others);
  for (const std::string& one : choices) options.choices.push_back(parse_alternatives(one));
  options.by_time = parse_by_time(by);
  if (options.by_time) options.record.traces_work = true;
  check_choices(options, !values.empty() || !part.empty());
  if (!choices.empty()) return options;
  for (const std::string& one : values) options.values.push_back(parse_values(one));
  if (!part.empty()) options.part = parse_part(part);
  std::vector<std::string> given, wanted = placeholders_in(options.record.command);
  for (const auto& one : options.values) given.push_back(one.first);
  std::ranges::sort(given);
  std::ranges::sort(wanted);
  if (given != wanted || wanted.empty()) {
    throw std::invalid_argument(fmt::format(
        "--values: the command's placeholders are {}, and values are given for {}; give --values "
        "NAME=1,2,4 for each",
        listed(wanted), listed(given)));
  }
  if (combinations_in_part(options).empty()) {
    throw std::invalid_argument(fmt::format(
        "--part {}: there are only {} combinations of values; give at most as many parts", part,
        combinations_of(options.values).size()));
  }
  return options;
}

std::string solve_help() {
  return std::string(
             "usage: shardlens solve [flags] -- COMMAND with {NAME}\n\n"
             "Finds the largest whole number with which an unmodified PyTorch program fits a GPU:\n"
             "runs it on a simulated GPU with numbers in place of {NAME}, such as --batch "
             "{batch}.\n"
             "It doubles the number until the program no longer fits, then halves the interval; a\n"
             "program is taken to fit with all smaller numbers.\n\n"
             "  --device D         the simulated GPU, such as null:h100\n"
             "  --from N           the smallest number; default: 1\n"
             "  --most N           the largest number; default: 1048576\n"
             "  --time             also predict how long a step takes with each\n"
             "  --json             print JSON\n"
             "  --out DIR          where to put the recording of each run; default: "
             "runs/SCRIPT-TIME\n\n") +
         kOtherFlags +
         "Exit code: 0 if the largest number is known, 3 if the program does not fit with any, 5 "
         "if\n"
         "it failed, seems to ignore the number, or was interrupted; 2 for wrong use.\n";
}

std::string sweep_help() {
  return std::string(
             "usage: shardlens sweep --values NAME=N,N,... [flags] -- COMMAND with {NAME}\n"
             "       shardlens sweep --choices 'FLAGS|FLAGS...' ... [flags] -- COMMAND\n\n"
             "Runs an unmodified PyTorch program on a simulated GPU with each combination of "
             "values\n"
             "in place of placeholders, and prints a table of what it takes. With --choices it "
             "runs\n"
             "the program with each combination of alternative flags, and prints those that fit "
             "and\n"
             "take less memory than all cheaper ones.\n\n"
             "  --values NAME=N,N  values of {NAME}; once for each placeholder of the command\n"
             "  --part I/N         run only every Nth combination, from the Ith on: for array "
             "jobs\n"
             "  --choices FLAGS|F  alternative flags, the cheapest first; an empty one is the "
             "command as\n"
             "                     it is. Each --choices costs more than all before it\n"
             "  --by time          with --choices: the fastest first, by the predicted time\n"
             "  --device D         the simulated GPU, such as null:h100\n"
             "  --time             also predict how long a step takes with each\n"
             "  --json             print JSON\n"
             "  --out DIR          where to put the recording of each run; default: "
             "runs/SCRIPT-TIME\n\n") +
         kOtherFlags +
         "Exit code: 0 if each run shows whether the program fits, 5 if one failed or is missing; "
         "2\n"
         "for wrong use. With --choices: 0 if one fits, 3 if none does, 5 if it was interrupted "
         "before\n"
         "that, or all failed.\n";
}

std::string solution_text(const SolveOptions& options, const Solution& solution) {
  std::string text;
  if (solution.is_solved()) {
    text = fmt::format("{}={} is the largest that fits", options.name, *solution.largest);
    text += solution.too_large
                ? fmt::format("; {}={} does not\n", options.name, *solution.too_large)
                : fmt::format(" up to --most {}\n", options.most);
  } else {
    text = fmt::format("not solved: {}\n", solution.problem);
    if (solution.largest) {
      text += fmt::format("  {}={} fits\n", options.name, *solution.largest);
    }
  }
  RunTable table(options.record);
  for (const SolvedRun& run : solution.runs) table.add({{options.name, run.value}}, run.result);
  return text + "\n" + table.text() +
         fmt::format("\nnext\n  shardlens view {}: see all runs side by side\n",
                     options.record.out);
}

std::string solution_json(const SolveOptions& options, const Solution& solution) {
  const auto or_null = [](const std::optional<int64_t>& value) {
    return value ? Json(*value) : Json();
  };
  Json json = {{"schema", "shardlens.solution/1"},
               {"name", options.name},
               {"out", options.record.out},
               {"is_solved", solution.is_solved()},
               {"largest_that_fits", or_null(solution.largest)},
               {"smallest_that_does_not", or_null(solution.too_large)},
               {"problem", solution.problem},
               {"runs", Json::array()}};
  for (const SolvedRun& run : solution.runs) {
    json["runs"].push_back(run_json({{options.name, run.value}}, run.result));
  }
  return json_text(json);
}

std::string sweep_text(const SweepOptions& options, const std::vector<SweptRun>& runs) {
  RunTable table(options.record);
  for (const SweptRun& run : runs) table.add(run.values, run.result);
  return table.text() + fmt::format("\nnext\n  shardlens view {}: see all runs side by side\n",
                                    options.record.out);
}

std::string sweep_json(const SweepOptions& options, const std::vector<SweptRun>& runs) {
  Json json = {
      {"schema", "shardlens.sweep/1"}, {"out", options.record.out}, {"runs", Json::array()}};
  for (const SweptRun& run : runs) json["runs"].push_back(run_json(run.values, run.result));
  return json_text(json);
}

}  // namespace shardlens::profiler
