// Finds the cheapest levers with which a program fits a GPU, by running it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "profiler/record/search/variants.h"

namespace shardlens::profiler {

struct AdviseOptions {
  bool help = false;
  bool prints_json = false;
  RecordOptions record = {};       // of the program as it is
  int64_t fit_bytes = 0;           // of the GPU that it is to fit
  std::vector<Lever> wanted = {};  // only these are tried; empty: those of the table
  size_t most_levers = 3;          // in one set
  bool by_time = false;            // the fastest set that fits is the best, not the cheapest
};

/// Parses `arguments`, without the program's name. Throws std::invalid_argument.
AdviseOptions parse_advise_options(const std::vector<std::string>& arguments);
std::string advise_help();

/// Says why a lever was not tried.
struct UntriedLever {
  Lever lever;
  std::string why;
};

struct Findings {
  int64_t fit_bytes = 0;
  VariantResult base = {};                        // the program as it is
  std::vector<VariantResult> tried = {};          // sets of levers, the best that fits first
  std::vector<UntriedLever> not_applicable = {};  // with the reason
  /// No cheaper set of up to `most_levers` that helped fits: each was run, or a larger one was.
  bool is_complete = false;
  /// The steps after which sets were ended: all later steps of the program as it is are alike.
  std::optional<int64_t> steps_of_sets = {};
  size_t most_levers = 0;
  bool by_time = false;
  bool was_interrupted = false;
  size_t left_out = 0;  // sets that were to be run when it was interrupted

  /// Returns the cheapest set that fits, or the fastest if `by_time`; or null.
  const VariantResult* best() const;
  /// Returns the best set if there is a reason to use it: the program does not fit as it is, or is
  /// slower by more than what predictions were shown to tell apart. Else null.
  const VariantResult* advised() const;
  /// Returns the time in which a program trains on as much as the program as it is does in a step,
  /// or nothing if no time was predicted.
  std::optional<double> comparable_seconds(const VariantResult& result) const;
};

/// Returns what a set of levers costs, to compare it with others.
int cost_of(const std::vector<Lever>& levers);
/// Returns what a program that was run costs: retries of the allocator cost as a lever of little
/// cost.
int cost_of(const VariantResult& result);

/// Runs the program as it is, with each lever that applies, and with sets of those that helped, the
/// cheapest first, until one fits. `jobs()` says how many variants can run at once.
Findings advise(const AdviseOptions& options, const RunVariants& run,
                const std::function<int()>& jobs);

Findings advise(const AdviseOptions& options, VariantRunner& runner);

std::string findings_text(const AdviseOptions& options, const Findings& advice);
std::string findings_json(const AdviseOptions& options, const Findings& advice);

}  // namespace shardlens::profiler
