// Runs the recipes of a file on simulated GPUs, and compares what each takes with recordings that a
// repository keeps: its baseline.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "profiler/compare/diff.h"
#include "profiler/record/search/part.h"
#include "profiler/record/search/recipes.h"
#include "profiler/record/search/variants.h"
#include "profiler/record/time/time_change.h"

namespace shardlens::profiler {

struct MatrixOptions {
  bool help = false;
  bool prints_json = false;
  bool updates = false;       // the recordings become the baseline
  std::string file = {};      // of the recipes
  std::string out = {};       // folder of the recordings
  std::string baseline = {};  // folder; empty: nothing is compared
  std::string markdown = {};  // file for a comment; empty: none
  double limit_percent = 2;
  bool predicts_times = false;
  double time_limit_percent = 5;  // that a step may take longer
  RunPart part = {};              // of the recipes
};

/// Throws std::invalid_argument.
MatrixOptions parse_matrix_options(const std::vector<std::string>& arguments);
std::string matrix_help();

enum class RecipeState : uint8_t {
  same,            // both peaks are equal, to the byte
  within_limit,    // a peak differs, and none grew by more than the limit; or it fits again
  grew,            // a peak grew by more than the limit
  no_longer_fits,  // it runs out of memory, and the baseline did not
  added,           // the baseline lacks it
  failed,          // the program failed, or nothing was recorded
  not_compared,    // something else differs, such as the steps
  not_run,         // the matrix was interrupted before
  slower           // a step takes longer by more than its limit, whatever the host's noise
};

struct RecipeResult {
  std::string name;
  RecipeState state = RecipeState::not_run;
  std::optional<VariantResult> run = {};
  std::optional<RankDiff> diff = {};            // with the baseline, where both have a recording
  std::optional<PredictedTime> base_time = {};  // of the baseline; nothing: not asked, or none
  std::string why = {};                         // it failed or was not compared
  std::vector<std::string> doubts = {};  // about whether it fits, its time, and the comparison

  std::optional<TimeChange> change_of_time() const;
};

struct Matrix {
  std::vector<RecipeResult> recipes;   // in the order of the file
  std::vector<std::string> gone = {};  // folders of the baseline that no recipe has; of part 1
  bool was_interrupted = false;
};

/// Returns what predicts the time of a program's recordings.
using MakeTimes = std::function<PredictTime(const RecordOptions& program)>;

/// Runs the recipes in the part, and compares each with the baseline. `replay` finds what other
/// addresses would lead to. Throws std::invalid_argument if the baseline has a recording that
/// cannot be read, and as VariantRunner does.
Matrix run_matrix(const MatrixOptions& options, const std::vector<Recipe>& all,
                  const ReplayRun& replay, const MakeTimes& times);

/// Makes the recordings the baseline, and removes those of recipes that are gone. Recipes that
/// failed keep what the baseline has.
void update_baseline(const MatrixOptions& options, const Matrix& matrix);

/// Returns 1 if a recipe grew, takes longer or no longer fits, else kNotRecorded if one failed, was
/// not run or could not be compared, else 0.
int exit_code_of(const Matrix& matrix);

std::string matrix_text(const MatrixOptions& options, const Matrix& matrix);
std::string matrix_markdown(const MatrixOptions& options, const Matrix& matrix);
std::string matrix_json(const MatrixOptions& options, const Matrix& matrix);

}  // namespace shardlens::profiler
