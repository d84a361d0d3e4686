#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <tuple>

#include "base/output_file.h"
#include "base/process/command_line.h"
#include "base/shown.h"
#include "base/strict_json.h"
#include "base/units.h"
#include "profiler/record/search/matrix.h"
#include "profiler/record/search/run_doubts.h"

namespace shardlens::profiler {

namespace {

using MatrixJson = nlohmann::ordered_json;

constexpr size_t kPlacesOfRecipe = 3;

struct StateWords {
  const char* key;    // in JSON
  const char* shown;  // in tables
  const char* said;   // "3 grew too much"
};
constexpr std::array<StateWords, 9> kStates = {{
    {"same", "same", "as before"},
    {"within_limit", "ok", "within the limit"},
    {"grew", "GREW", "grew too much"},
    {"no_longer_fits", "NO FIT", "no longer fits"},
    {"added", "new", "not in the baseline"},
    {"failed", "failed", "failed"},
    {"not_compared", "other", "not compared"},
    {"not_run", "-", "not run"},
    {"slower", "SLOWER", "takes longer"},
}};

const StateWords& words_of(RecipeState state) { return kStates[static_cast<size_t>(state)]; }

/// A place of the program that takes more at the peaks of recipes that grew.
struct SharedCause {
  std::string place;  // "train.py:41 forward"
  std::string category;
  int64_t most_bytes = 0;  // in one recipe
  std::vector<std::string> recipes = {};
};

bool is_refused(const RecipeResult& recipe) {
  return recipe.state == RecipeState::grew || recipe.state == RecipeState::no_longer_fits;
}

/// Returns the places that grew most in each recipe that is refused, those of most recipes first.
std::vector<SharedCause> causes_in(const Matrix& matrix) {
  std::map<std::pair<std::string, std::string>, SharedCause> causes;
  for (const RecipeResult& recipe : matrix.recipes) {
    if (!is_refused(recipe) || !recipe.diff) continue;
    size_t count = 0;
    for (const MatchedPlace& row : recipe.diff->at_peak.rows) {
      if (row.growth_bytes() <= 0) continue;
      if (++count > kPlacesOfRecipe) break;
      const std::string category(recipe.diff->name_of(row.category));
      SharedCause& cause = causes[{row.name, category}];
      cause.place = row.name;
      cause.category = category;
      cause.most_bytes = std::max(cause.most_bytes, row.growth_bytes());
      cause.recipes.push_back(recipe.name);
    }
  }
  std::vector<SharedCause> sorted;
  for (const auto& [place, cause] : causes) sorted.push_back(cause);
  std::ranges::stable_sort(sorted, std::greater(), [](const SharedCause& cause) {
    return std::pair(cause.recipes.size(), cause.most_bytes);
  });
  return sorted;
}

bool has_times(const Matrix& matrix) {
  return std::ranges::any_of(matrix.recipes, [](const RecipeResult& recipe) {
    return recipe.run && recipe.run->time.has_value();
  });
}

/// Returns what takes longer in a recipe that is slower; "": it is not.
std::string longer_parts_of(const RecipeResult& recipe) {
  if (recipe.state != RecipeState::slower) return {};
  return longer_parts_text(*recipe.base_time, *recipe.run->time);
}

std::string times_basis_of(const Matrix& matrix) {
  std::vector<std::optional<PredictedTime>> times;
  for (const RecipeResult& recipe : matrix.recipes) {
    if (recipe.run) times.push_back(recipe.run->time);
  }
  return times_basis_text(times);
}

std::vector<DoubtedRun> doubted_runs(const Matrix& matrix) {
  std::vector<DoubtedRun> runs;
  for (const RecipeResult& recipe : matrix.recipes) runs.push_back({recipe.name, recipe.doubts});
  return runs;
}

std::string recipe_growth(const RecipeResult& recipe) {
  return recipe.diff ? growth_percent_text(recipe.diff->gated_growth_percent(), 2) : "";
}

/// Returns the recipe's figures as (allocated, reserved), or how it ended and nothing.
std::pair<std::string, std::string> figures_of(const RecipeResult& recipe) {
  if (!recipe.run) return {"not run", ""};
  if (recipe.run->outcome == VariantOutcome::out_of_memory) return {"out of memory", ""};
  if (recipe.run->outcome != VariantOutcome::measured) return {recipe.why, ""};
  return {bytes_text(recipe.run->allocated_bytes), bytes_text(recipe.run->reserved_bytes)};
}

std::string summary_of(const MatrixOptions& options, const Matrix& matrix) {
  using enum RecipeState;
  constexpr std::array kOrder = {grew,    no_longer_fits, slower, failed, not_compared,
                                 not_run, within_limit,   same,   added};
  std::string text;
  for (const RecipeState state : kOrder) {
    const auto count = std::ranges::count(matrix.recipes, state, &RecipeResult::state);
    if (count == 0 || (state == added && options.baseline.empty())) continue;
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", count, words_of(state).said);
  }
  if (!matrix.gone.empty()) text += fmt::format(", {} gone from the file", matrix.gone.size());
  const size_t count = matrix.recipes.size();
  return fmt::format("{} {}{}{}", count, count == 1 ? "recipe" : "recipes",
                     text.empty() ? "" : ": ", text);
}

std::string growth_of_time(const RecipeResult& recipe) {
  const auto change = recipe.change_of_time();
  return change ? growth_percent_text(change->percent, 2) : "";
}

/// Returns the columns of time for a row or for the head; "" if times are not predicted.
std::string matrix_times(const Matrix& matrix, const std::string& time, const std::string& growth) {
  return has_times(matrix) ? fmt::format(" {:>15} {:>10}", time, growth) : std::string();
}

std::string matrix_row(const Matrix& matrix, const RecipeResult& recipe, size_t width) {
  const auto [allocated, reserved] = figures_of(recipe);
  const std::string time = recipe.run ? time_text(recipe.run->time) : "";
  std::string row =
      fmt::format("  {:<7} {:<{}} {:>13} {:>12} {:>10}{}", words_of(recipe.state).shown,
                  recipe.name, width, allocated, reserved, recipe_growth(recipe),
                  matrix_times(matrix, time, growth_of_time(recipe)));
  if (recipe.state == RecipeState::not_compared) row += "  " + recipe.why;
  return row.substr(0, row.find_last_not_of(' ') + 1) + "\n";
}

MatrixJson cause_json(const SharedCause& cause) {
  return {{"place", cause.place},
          {"category", cause.category},
          {"growth_bytes", cause.most_bytes},
          {"recipes", cause.recipes}};
}

MatrixJson recipe_json(const RecipeResult& recipe) {
  MatrixJson json = {{"name", recipe.name}, {"state", words_of(recipe.state).key}};
  if (!recipe.why.empty()) json["why"] = recipe.why;
  json["doubts"] = recipe.doubts;
  if (!recipe.run) return json;
  json["run"] = recipe.run->options.out;
  json["ran_out_of_memory"] = recipe.run->outcome == VariantOutcome::out_of_memory;
  if (recipe.run->outcome == VariantOutcome::measured) {
    json["allocated_bytes"] = recipe.run->allocated_bytes;
    json["reserved_bytes"] = recipe.run->reserved_bytes;
  }
  json["bands"] = bands_json(recipe.run->bands);
  json["time"] = predicted_time_json(recipe.run->time);
  json["base_time"] = predicted_time_json(recipe.base_time);
  const auto change = recipe.change_of_time();
  json["time_growth_percent"] = change ? MatrixJson(change->percent) : MatrixJson();
  json["certain_time_growth_percent"] = change ? MatrixJson(change->certain_percent) : MatrixJson();
  if (!recipe.diff) return json;
  json["base_allocated_bytes"] = recipe.diff->peak.a_bytes;
  if (recipe.diff->reserved) json["base_reserved_bytes"] = recipe.diff->reserved->a_bytes;
  const double percent = recipe.diff->gated_growth_percent();
  json["growth_percent"] = std::isinf(percent) ? MatrixJson() : MatrixJson(percent);
  return json;
}

/// Returns a cell of a Markdown table, in which a bar would end the cell.
std::string cell_text(const std::string& text) {
  std::string cell;
  for (const char c : shown(text)) cell += c == '|' ? std::string("\\|") : std::string(1, c);
  return cell;
}

/// Returns the cells of time of a row; "" if times are not predicted.
std::string times_of_markdown(const Matrix& matrix, const RecipeResult& recipe) {
  if (!has_times(matrix)) return {};
  std::string time = recipe.run ? time_text(recipe.run->time) : "";
  if (recipe.base_time && recipe.base_time->is_known()) {
    time = fmt::format("{} -> {}", recipe.base_time->text, time);
  }
  return fmt::format(" {} | {} |", time, growth_of_time(recipe));
}

std::string markdown_row_of(const Matrix& matrix, const RecipeResult& recipe) {
  const auto [allocated, reserved] = figures_of(recipe);
  const auto from = [](int64_t base_bytes, const std::string& to) {
    return to.empty() ? to : fmt::format("{} -> {}", bytes_text(base_bytes), to);
  };
  const bool has_base = recipe.diff.has_value();
  const bool has_reserved = has_base && recipe.diff->reserved;
  return fmt::format("| {} | {} | {} | {} | {} |{}\n", cell_text(recipe.name),
                     words_of(recipe.state).said,
                     has_base ? from(recipe.diff->peak.a_bytes, allocated) : cell_text(allocated),
                     has_reserved ? from(recipe.diff->reserved->a_bytes, reserved) : reserved,
                     recipe_growth(recipe), times_of_markdown(matrix, recipe));
}

}  // namespace

MatrixOptions parse_matrix_options(const std::vector<std::string>& arguments) {
  MatrixOptions options;
  CLI::App app;
  std::string limit = "2%", time_limit, part;
  app.set_help_flag();
  app.add_flag("--help,-h", options.help);
  app.add_flag("--json", options.prints_json);
  app.add_flag("--update", options.updates);
  app.add_option("FILE", options.file);
  app.add_option("--out", options.out);
  app.add_option("--baseline", options.baseline);
  app.add_option("--markdown", options.markdown);
  app.add_option("--fail-above", limit);
  app.add_flag("--time", options.predicts_times);
  app.add_option("--fail-slower", time_limit);
  app.add_option("--part", part);
  parse_flags(app, arguments);
  if (options.help) return options;
  options.limit_percent = parse_percent("--fail-above", limit);
  if (!time_limit.empty()) {
    options.time_limit_percent = parse_percent("--fail-slower", time_limit);
    options.predicts_times = true;
  }
  if (!part.empty()) options.part = parse_part(part);
  if (options.file.empty()) {
    throw std::invalid_argument("FILE is missing; name a file of recipes, such as recipes.yaml");
  }
  if (options.updates && options.baseline.empty()) {
    throw std::invalid_argument("--update: give --baseline DIR, which it writes");
  }
  if (!options.markdown.empty()) expect_writable(options.markdown);
  if (options.out.empty()) options.out = default_folder({options.file});
  return options;
}

std::string matrix_help() {
  return "usage: shardlens matrix FILE [flags]\n\n"
         "Runs the recipes of a file, unmodified PyTorch programs with flags of `shardlens "
         "record`,\n"
         "on simulated GPUs, and compares what each takes with a baseline. FILE is YAML, JSON or\n"
         "TOML:\n\n"
         "  recipes:\n"
         "    sft:\n"
         "      command: python sft.py --batch {batch}   # or a list of words\n"
         "      device: [null:h100, null:l4]             # a flag of `shardlens record`\n"
         "      with: [null, recompute]                  # null: without the flag\n"
         "      batch: [8, 16]                           # a placeholder of the command\n\n"
         "Each combination of lists is run. Keys beside `recipes` hold for all of them.\n\n"
         "  --baseline DIR     recordings to compare with\n"
         "  --update           make the new recordings the baseline\n"
         "  --fail-above P%    how much a peak, allocated or reserved, may grow; default: 2%\n"
         "  --time             also predict how long a step takes, and compare that, too\n"
         "  --fail-slower P%   as --time; how much longer a step may take; default: 5%\n"
         "  --markdown FILE    write a comment for a change\n"
         "  --part I/N         run only every Nth recipe, from the Ith on, such as in a job of an "
         "array\n"
         "  --json             print JSON\n"
         "  --out DIR          where to put the recording of each run; default: "
         "runs/FILE-TIME\n\n"
         "Exit code: 0 if no peak grew too much, 1 if one did, a step takes too much longer or a\n"
         "recipe no longer fits, 5 if a recipe failed, cannot be compared or was not run; 2 for\n"
         "wrong use.\n";
}

std::string matrix_text(const MatrixOptions& options, const Matrix& matrix) {
  std::string text = summary_of(options, matrix);
  const size_t widest = std::ranges::max(matrix.recipes, {}, [](const RecipeResult& recipe) {
                          return recipe.name.size();
                        }).name.size();
  const std::string growth = options.baseline.empty() ? "" : "growth";
  text += fmt::format("\n\n  {:<7} {:<{}} {:>13} {:>12} {:>10}{}\n", "", "", widest, "allocated",
                      "reserved", growth, matrix_times(matrix, "a step", growth));
  for (const RecipeResult& recipe : matrix.recipes) text += matrix_row(matrix, recipe, widest);
  for (const std::string& folder : matrix.gone) {
    text += fmt::format("  gone    {}\n", folder);
  }
  text += times_basis_of(matrix) + doubts_text(doubted_runs(matrix));
  for (const RecipeResult& recipe : matrix.recipes) {
    const std::string longer = longer_parts_of(recipe);
    if (!longer.empty()) text += fmt::format("  takes longer in {}: {}\n", recipe.name, longer);
  }
  const std::vector<SharedCause> causes = causes_in(matrix);
  if (!causes.empty()) text += "\nwhat grew at the peaks\n";
  for (const SharedCause& cause : causes) {
    text += fmt::format("  {:>12}  {:<16} {} in {}\n", "+" + bytes_text(cause.most_bytes),
                        cause.category, shown(cause.place), runs_text(cause.recipes));
  }
  return text +
         fmt::format("\nnext\n  shardlens view {}: see all runs side by side\n", options.out);
}

std::string matrix_markdown(const MatrixOptions& options, const Matrix& matrix) {
  std::string text = fmt::format("### GPU memory of {}\n\n", summary_of(options, matrix));
  const std::vector<SharedCause> causes = causes_in(matrix);
  if (!causes.empty()) {
    text += "| growth at the peak | for | allocated at | in |\n|---:|---|---|---|\n";
  }
  for (const SharedCause& cause : causes) {
    text += fmt::format("| +{} | {} | `{}` | {} |\n", bytes_text(cause.most_bytes), cause.category,
                        cell_text(cause.place), cell_text(runs_text(cause.recipes)));
  }
  if (!causes.empty()) text += "\n";
  const bool timed = has_times(matrix);
  text +=
      fmt::format("| recipe | | allocated | reserved | growth |{}\n|---|---|---:|---:|---:|{}\n",
                  timed ? " a step | growth |" : "", timed ? "---:|---:|" : "");
  size_t same = 0;
  for (const RecipeResult& recipe : matrix.recipes) {
    recipe.state == RecipeState::same ? void(++same)
                                      : void(text += markdown_row_of(matrix, recipe));
  }
  if (same > 0)
    text += fmt::format("| {} {} | as before | | | |{}\n", same, same == 1 ? "recipe" : "recipes",
                        timed ? " | |" : "");
  for (const std::string& folder : matrix.gone) {
    text += fmt::format("| {} | gone from the file | | | |{}\n", cell_text(folder),
                        timed ? " | |" : "");
  }
  const std::vector<SharedDoubt> doubts = shared_doubts(doubted_runs(matrix));
  if (!doubts.empty()) text += "\n";
  for (const SharedDoubt& doubt : doubts) {
    text += fmt::format("- in doubt: {} ({})\n", shown(doubt.text), runs_text(doubt.runs));
  }
  return text;
}

std::string matrix_json(const MatrixOptions& options, const Matrix& matrix) {
  MatrixJson json = {
      {"schema", "shardlens.matrix/1"},
      {"out", options.out},
      {"limit_percent", options.limit_percent},
      {"was_interrupted", matrix.was_interrupted},
      {"time_limit_percent",
       options.predicts_times ? MatrixJson(options.time_limit_percent) : MatrixJson()},
      {"recipes", MatrixJson::array()},
      {"gone", matrix.gone},
      {"causes", MatrixJson::array()}};
  for (const RecipeResult& recipe : matrix.recipes) json["recipes"].push_back(recipe_json(recipe));
  for (const SharedCause& cause : causes_in(matrix)) json["causes"].push_back(cause_json(cause));
  return json_text(json);
}

}  // namespace shardlens::profiler
