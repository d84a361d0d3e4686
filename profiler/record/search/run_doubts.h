// Words the doubts about several runs of a program, each doubt once.
#pragma once

#include <string>
#include <vector>

#include "profiler/record/search/variants.h"

namespace shardlens::profiler {

struct DoubtedRun {
  std::string name;
  std::vector<std::string> doubts;
};

/// Returns a run under this name, with its doubts and those about the time of its steps.
DoubtedRun doubted_run(const std::string& name, const VariantResult& result);

/// A doubt, and the runs that it is about.
struct SharedDoubt {
  std::string text;
  std::vector<std::string> runs;
};

/// Returns the doubts in the order in which they come first.
std::vector<SharedDoubt> shared_doubts(const std::vector<DoubtedRun>& runs);

/// Returns a line for each doubt, "  in doubt: TEXT (batch=4; batch=8)", without the names if it is
/// about all runs.
std::string doubts_text(const std::vector<DoubtedRun>& runs);

/// Returns "a; b; c and 2 more".
std::string runs_text(const std::vector<std::string>& names);

}  // namespace shardlens::profiler
