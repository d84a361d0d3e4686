#include "profiler/record/search/choices.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <sstream>
#include <stdexcept>
#include <utility>

#include "base/units.h"
#include "profiler/record/search/placeholders.h"

namespace shardlens::profiler {

namespace {

std::string joined(const std::string& one, const std::string& other) {
  return one.empty() || other.empty() ? one + other : one + " " + other;
}

std::vector<std::string> split_words(const std::string& flags) {
  std::istringstream stream(flags);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

/// Returns the name of a run's folder: "tp=2+recompute=full", "as_given".
std::string folder_name_of(const std::string& flags) {
  std::string name;
  for (const std::string& word : split_words(flags_text(flags))) {
    const bool is_flag = word.starts_with("--");
    const char* const between = is_flag ? "+" : !flags.empty() ? "=" : "_";
    if (!name.empty()) name += between;
    name += is_flag ? word.substr(2) : word;
  }
  return name;
}

/// Returns why a run does not fit by itself, whatever the others take.
Problem why_unfit(const VariantResult& result, int64_t budget_bytes) {
  switch (result.outcome) {
    case VariantOutcome::out_of_memory:
      return (result.why.starts_with("does not fit") ? "" : "does not fit: ") + result.why;
    case VariantOutcome::failed:
      return "failed: " + result.why;
    case VariantOutcome::idle:
      return "nothing was recorded: " + result.why;
    case VariantOutcome::measured:
      break;
  }
  if (!result.fits(budget_bytes)) {
    return fmt::format("does not fit: takes {}", bytes_text(result.device_bytes()));
  }
  if (result.has_retries) return "fits only with retries: the allocator freed what it had cached";
  return std::nullopt;
}

/// Returns the seconds of a step; infinity if they are not known.
double seconds_of(const ChosenRun& run) {
  const bool is_known = run.result.time && run.result.time->is_known();
  return is_known ? run.result.time->seconds : std::numeric_limits<double>::infinity();
}

/// Says of each run why it is not worth considering: it does not fit, or takes no less than one
/// before it.
void reject(RankedSettings& choices, bool by_time) {
  const ChosenRun* best = nullptr;
  for (ChosenRun& run : choices.runs) {
    run.rejected = why_unfit(run.result, choices.budget_bytes);
    if (run.rejected) continue;
    if (best != nullptr && run.result.device_bytes() >= best->result.device_bytes()) {
      run.rejected = fmt::format("no {} and no smaller than: {}", by_time ? "faster" : "cheaper",
                                 flags_text(best->flags));
      continue;
    }
    best = &run;
  }
}

}  // namespace

std::string flags_text(const std::string& flags) { return flags.empty() ? "as given" : flags; }

Alternatives parse_alternatives(const std::string& text) {
  Alternatives alternatives;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find('|', at), text.size());
    std::string flags;
    for (const std::string& word : split_words(text.substr(at, end - at)))
      flags = joined(flags, word);
    alternatives.push_back(flags);
    at = end + 1;
  }
  if (alternatives.size() > 1) return alternatives;
  throw std::invalid_argument(fmt::format(
      "--choices '{}': give alternatives, the cheapest first, such as '|--recompute full'", text));
}

std::vector<std::string> combined_flags(const std::vector<Alternatives>& choices) {
  std::vector<std::pair<std::string, Alternatives>> lists;
  for (const Alternatives& one : choices) lists.emplace(lists.begin(), "", one);
  std::vector<std::string> combined;
  for (const auto& combination : combinations_of(lists)) {  // the first choice varies fastest
    std::string flags;
    for (const auto& [name, more] : combination) flags = joined(more, flags);
    combined.push_back(flags);
  }
  return combined;
}

std::vector<const ChosenRun*> RankedSettings::front() const {
  std::vector<const ChosenRun*> front;
  for (const ChosenRun& run : runs) {
    if (!run.rejected) front.push_back(&run);
  }
  return front;
}

RankedSettings choose(const ChoiceOptions& options, const RunVariants& run) {
  const std::vector<std::string> all = combined_flags(options.choices);
  std::vector<RecordOptions> programs;
  std::vector<std::string> names;
  for (const std::string& flags : all) {
    RecordOptions program = in_folder(options.record, folder_name_of(flags));
    for (const std::string& word : split_words(flags)) program.command.push_back(word);
    programs.push_back(program);
    names.push_back(flags_text(flags));
  }
  RankedSettings choices{.budget_bytes = memory_bytes_of(options.record.device)};
  for (VariantResult& result : run(programs, names)) {
    const auto at = std::ranges::find(programs, result.options.out, &RecordOptions::out);
    choices.runs.push_back({.flags = all[static_cast<size_t>(at - programs.begin())],
                            .result = std::move(result),
                            .rejected = {}});
  }
  choices.left_out = all.size() - choices.runs.size();
  if (options.by_time) std::ranges::stable_sort(choices.runs, {}, seconds_of);
  reject(choices, options.by_time);
  return choices;
}

}  // namespace shardlens::profiler
