// Finds the cheapest settings with which a program fits a GPU, by running it with each combination
// of alternatives for its flags.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/fault.h"
#include "profiler/record/search/variants.h"

namespace shardlens::profiler {

/// Holds flags that exclude each other, the cheapest first: {"", "--recompute full"}. Empty ones
/// leave the command as it is.
using Alternatives = std::vector<std::string>;

struct ChoiceOptions {
  RecordOptions record;               // of the command, to which flags are added
  std::vector<Alternatives> choices;  // each costs more than all before it
  bool by_time = false;               // the fastest first, not the cheapest
};

/// Parses "|--recompute full". Throws std::invalid_argument if there are no two alternatives.
Alternatives parse_alternatives(const std::string& text);

/// Returns each combination of alternatives as the flags to add, the cheapest first.
std::vector<std::string> combined_flags(const std::vector<Alternatives>& choices);

/// Returns the flags, or "as given" if there are none.
std::string flags_text(const std::string& flags);

/// Holds what the program takes with some flags.
struct ChosenRun {
  std::string flags;  // "" for the command as it is
  VariantResult result;
  Problem rejected;  // why it is not worth considering; nothing: it is
};

struct RankedSettings {
  int64_t budget_bytes = 0;
  std::vector<ChosenRun> runs = {};  // the cheapest first, or the fastest
  size_t left_out = 0;               // combinations that an interrupt left out

  /// Returns the runs that fit and take less than each that comes before them.
  std::vector<const ChosenRun*> front() const;
};

/// Runs the program with each combination. `run` returns fewer results than it was given if it was
/// interrupted.
RankedSettings choose(const ChoiceOptions& options, const RunVariants& run);

std::string choices_text(const ChoiceOptions& options, const RankedSettings& choices);
std::string choices_json(const ChoiceOptions& options, const RankedSettings& choices);

}  // namespace shardlens::profiler
