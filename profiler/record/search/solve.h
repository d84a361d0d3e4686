// Finds the largest value of a placeholder with which a program fits a GPU, by running it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "profiler/record/search/choices.h"
#include "profiler/record/search/part.h"
#include "profiler/record/search/placeholders.h"
#include "profiler/record/search/variants.h"

namespace shardlens::profiler {

struct SolveOptions {
  bool help = false;
  bool prints_json = false;
  RecordOptions record = {};  // whose command has the placeholder
  std::string name = {};      // of the placeholder
  int64_t from = 1;           // the smallest value that is tried
  int64_t most = int64_t{1} << 20;
};

SolveOptions parse_solve_options(const std::vector<std::string>& arguments);
std::string solve_help();

struct SolvedRun {
  int64_t value = 0;
  VariantResult result;
};

struct Solution {
  std::vector<SolvedRun> runs;       // by value
  std::optional<int64_t> largest;    // of the values that were run and fit
  std::optional<int64_t> too_large;  // the smallest of those that do not fit
  std::string problem = {};          // why the largest value is not known
  bool was_interrupted = false;

  bool is_solved() const { return problem.empty() && largest.has_value(); }
};

/// Doubles the value from `from` until the program no longer fits, then halves the interval. `run`
/// runs the program with a value; nothing: it was interrupted.
using RunWithValue = std::function<std::optional<VariantResult>(int64_t value)>;
Solution solve(const SolveOptions& options, const RunWithValue& run);

Solution solve(const SolveOptions& options, VariantRunner& runner);

std::string solution_text(const SolveOptions& options, const Solution& solution);
std::string solution_json(const SolveOptions& options, const Solution& solution);

// ---- several placeholders -----------------------------------------------------------------------

struct SweepOptions {
  bool help = false;
  bool prints_json = false;
  RecordOptions record;
  std::vector<std::pair<std::string, std::vector<int64_t>>> values;  // of each placeholder
  std::vector<Alternatives> choices;  // instead of values: flags, to find the cheapest that fit
  bool by_time = false;               // the fastest of them is first
  RunPart part = {};
};

SweepOptions parse_sweep_options(const std::vector<std::string>& arguments);
std::string sweep_help();

struct SweptRun {
  std::vector<PlacedValue> values;
  VariantResult result;
};

/// Returns the combinations of the values that are in the part.
std::vector<std::vector<PlacedValue>> combinations_in_part(const SweepOptions& options);

/// Runs the program with each combination in the part; fewer if it is interrupted.
std::vector<SweptRun> sweep(const SweepOptions& options, VariantRunner& runner);

std::string sweep_text(const SweepOptions& options, const std::vector<SweptRun>& runs);
std::string sweep_json(const SweepOptions& options, const std::vector<SweptRun>& runs);

}  // namespace shardlens::profiler
