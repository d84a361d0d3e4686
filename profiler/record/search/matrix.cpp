#include "profiler/record/search/matrix.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <utility>

#include "base/input_file.h"
#include "base/limits.h"
#include "base/output_file.h"
#include "base/process/command_line.h"
#include "base/strict_json.h"
#include "profiler/compare/address_doubts.h"
#include "profiler/compare/comparability.h"
#include "profiler/record/record_verdict.h"
#include "profiler/record/search/run_doubts.h"
#include "profiler/report/recording_report.h"

namespace shardlens::profiler {

namespace {

namespace fs = std::filesystem;

bool is_recording(const fs::path& file) { return file.extension() == ".slp"; }

bool has_recordings(const fs::path& folder) {
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    if (is_recording(entry.path())) return true;
  }
  return false;
}

fs::path notes_of(fs::path recording) { return recording.replace_extension(".json"); }

/// Copies what a comparison needs of the notes beside a recording. The others name files.
void copy_notes(const fs::path& recording, const fs::path& copy) {
  const auto notes = find_json(read_file(notes_of(recording), kDescription.bytes).text);
  if (!notes || !notes->is_object()) return;
  nlohmann::ordered_json kept;
  for (const char* key : {"beside_pytorch", "bands"}) {
    if (notes->contains(key)) kept[key] = (*notes)[key];
  }
  if (!kept.is_null()) write_text(notes_of(copy).string(), json_text(kept));
}

/// Removes a recording of the baseline, and the notes beside it.
void remove_recording(const fs::path& file) {
  fs::remove(file);
  fs::remove(notes_of(file));
}

std::vector<RankReport> reports_in(const fs::path& run) {
  std::vector<RankReport> ranks;
  for (const std::string& file : recordings_of(run.string())) ranks.push_back(report_of(file));
  return ranks;
}

/// Returns what keeps two runs from being compared, except that only one ran out of memory: that is
/// an answer here.
std::vector<FoundObstacle> obstacles_beside_memory(const RunDiff& diff) {
  const std::vector<Obstacle> allowed = {Obstacle::out_of_memory};
  return remove_allowed(obstacles_between(diff), allowed);
}

RecipeState state_of(const RankDiff& diff, double limit_percent) {
  if (diff.b.ran_out_of_memory && !diff.a.ran_out_of_memory) return RecipeState::no_longer_fits;
  if (diff.a.ran_out_of_memory != diff.b.ran_out_of_memory) return RecipeState::within_limit;
  if (diff.gated_growth_percent() > limit_percent) return RecipeState::grew;
  const bool is_same =
      diff.peak.growth_bytes() == 0 && (!diff.reserved || diff.reserved->growth_bytes() == 0);
  return is_same ? RecipeState::same : RecipeState::within_limit;
}

void compare_with(const fs::path& base, double limit_percent, RecipeResult& recipe) {
  const RunDiff diff = diff_runs(reports_in(base), reports_in(recipe.run->options.out));
  const auto obstacles = obstacles_beside_memory(diff);
  recipe.diff = diff.worst_gated_pair();
  recipe.state = state_of(*recipe.diff, limit_percent);
  for (const RankDiff& rank : diff.ranks) {
    const std::vector<std::string> doubts = address_doubts(rank, limit_percent);
    recipe.doubts.insert(recipe.doubts.end(), doubts.begin(), doubts.end());
  }
  // A program that runs out of memory ends after fewer steps.
  if (obstacles.empty() || recipe.state == RecipeState::no_longer_fits) return;
  recipe.state = RecipeState::not_compared;
  recipe.why = obstacles.front().text;
}

/// Compares the time of a step, of which a recipe that takes too much memory says nothing.
void compare_times(const fs::path& base, const MatrixOptions& options, const PredictTime& predict,
                   RecipeResult& recipe) {
  recipe.base_time = slowest_time(recordings_of(base.string()), predict);
  const double limit = options.time_limit_percent;
  const auto doubts = doubts_of_change(recipe.base_time, recipe.run->time, limit);
  recipe.doubts.insert(recipe.doubts.end(), doubts.begin(), doubts.end());
  const auto change = recipe.change_of_time();
  const bool is_good =
      recipe.state == RecipeState::same || recipe.state == RecipeState::within_limit;
  if (is_good && change && change->is_slower_than(limit)) recipe.state = RecipeState::slower;
}

RecipeResult judged(const MatrixOptions& options, const Recipe& recipe,
                    const std::optional<VariantResult>& run, const MakeTimes& times) {
  RecipeResult result{.name = recipe.name, .run = run};
  if (!run) return result;
  const bool has_answer =
      run->outcome == VariantOutcome::measured || run->outcome == VariantOutcome::out_of_memory;
  if (!has_answer) {
    result.state = RecipeState::failed;
    result.why = run->why;
    return result;
  }
  result.doubts = doubted_run(recipe.name, *run).doubts;
  result.state = RecipeState::added;
  const fs::path base = fs::path(options.baseline) / folder_of(recipe.name);
  if (options.baseline.empty() || !has_recordings(base)) return result;
  if (has_recordings(fs::path(run->options.out) / "profiles")) {
    compare_with(base, options.limit_percent, result);
    if (run->time) compare_times(base, options, times(recipe.options), result);
  } else {  // it ran out of memory before anything was recorded
    result.state = RecipeState::no_longer_fits;
  }
  return result;
}

std::vector<std::string> gone_from(const MatrixOptions& options,
                                   const std::vector<Recipe>& recipes) {
  std::vector<std::string> gone;
  if (options.baseline.empty() || !fs::is_directory(options.baseline)) return gone;
  for (const fs::directory_entry& entry : fs::directory_iterator(options.baseline)) {
    const std::string folder = entry.path().filename().string();
    const bool has_recipe = std::ranges::any_of(
        recipes, [&](const Recipe& recipe) { return folder_of(recipe.name) == folder; });
    if (!has_recipe && has_recordings(entry.path())) gone.push_back(folder);
  }
  std::ranges::sort(gone);
  return gone;
}

/// Recipes that one runner runs: those of one Python, whose times one calibration predicts.
struct RecipeGroup {
  std::vector<RecordOptions> programs;
  std::vector<std::string> names;
};

std::map<std::pair<std::string, std::string>, RecipeGroup> groups_of(
    const std::vector<Recipe>& recipes) {
  std::map<std::pair<std::string, std::string>, RecipeGroup> groups;
  for (const Recipe& recipe : recipes) {
    RecipeGroup& group = groups[{recipe.options.command.front(), recipe.options.calibration}];
    group.programs.push_back(in_folder(recipe.options, recipe.name));
    group.names.push_back(recipe.name);
  }
  return groups;
}

/// Returns each recipe's run by the folder it went to. An interrupt leaves out the rest.
std::map<std::string, VariantResult> run_all(const std::vector<Recipe>& recipes,
                                             const ReplayRun& replay, const MakeTimes& times,
                                             bool& was_interrupted) {
  std::map<std::string, VariantResult> runs;
  for (const auto& [_, group] : groups_of(recipes)) {
    if (was_interrupted) break;
    const RecordOptions& first = group.programs.front();
    VariantRunner runner("matrix", first, replay, times(first));
    for (VariantResult& result : runner.run(group.programs, group.names)) {
      runs.emplace(result.options.out, std::move(result));
    }
    was_interrupted = runner.was_interrupted();
  }
  return runs;
}

void replace_recordings(const fs::path& from, const fs::path& to) {
  fs::create_directories(to);
  for (const fs::directory_entry& entry : fs::directory_iterator(to)) {
    if (is_recording(entry.path())) remove_recording(entry.path());
  }
  for (const fs::directory_entry& entry : fs::directory_iterator(from)) {
    if (!is_recording(entry.path())) continue;
    const fs::path kept = to / entry.path().filename();
    write_whole(kept.string(),
                [&](const std::string& unfinished) { fs::copy_file(entry.path(), unfinished); });
    copy_notes(entry.path(), kept);
  }
}

}  // namespace

std::optional<TimeChange> RecipeResult::change_of_time() const {
  return run ? time_change(base_time, run->time) : std::nullopt;
}

Matrix run_matrix(const MatrixOptions& options, const std::vector<Recipe>& all,
                  const ReplayRun& replay, const MakeTimes& times) {
  std::vector<Recipe> recipes = runs_in(options.part, all);
  if (recipes.empty()) {
    throw std::invalid_argument(
        fmt::format("--part {}/{}: there are only {} recipes; give at most as many parts",
                    options.part.number, options.part.count, all.size()));
  }
  for (Recipe& recipe : recipes) {
    recipe.options.traces_work = recipe.options.traces_work || options.predicts_times;
    if (recipe.options.traces_work) times(recipe.options);  // throws now, not after programs
  }
  Matrix matrix;
  const auto runs = run_all(recipes, replay, times, matrix.was_interrupted);
  for (const Recipe& recipe : recipes) {
    const auto found = runs.find((fs::path(options.out) / folder_of(recipe.name)).string());
    matrix.recipes.push_back(judged(
        options, recipe, found == runs.end() ? std::nullopt : std::optional(found->second), times));
  }
  if (options.part.number == 1) matrix.gone = gone_from(options, all);
  return matrix;
}

void update_baseline(const MatrixOptions& options, const Matrix& matrix) {
  for (const RecipeResult& recipe : matrix.recipes) {
    const bool has_answer =
        recipe.state != RecipeState::failed && recipe.state != RecipeState::not_run;
    if (!has_answer) continue;
    const fs::path from = fs::path(recipe.run->options.out) / "profiles";
    if (has_recordings(from)) {
      replace_recordings(from, fs::path(options.baseline) / folder_of(recipe.name));
    }
  }
  if (matrix.was_interrupted) return;
  for (const std::string& folder : matrix.gone) {
    const fs::path old = fs::path(options.baseline) / folder;
    for (const std::string& file : recordings_of(old.string())) remove_recording(file);
    std::error_code has_other_files;
    fs::remove(old, has_other_files);
  }
}

int exit_code_of(const Matrix& matrix) {
  const auto has = [&](RecipeState state) {
    return std::ranges::find(matrix.recipes, state, &RecipeResult::state) != matrix.recipes.end();
  };
  if (has(RecipeState::grew) || has(RecipeState::no_longer_fits) || has(RecipeState::slower)) {
    return 1;
  }
  const bool is_missing =
      has(RecipeState::failed) || has(RecipeState::not_compared) || has(RecipeState::not_run);
  return is_missing ? kNotRecorded : 0;
}

}  // namespace shardlens::profiler
