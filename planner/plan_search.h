// Tries every strategy of a product of flags and keeps those that fit in a budget: the Pareto front
// of memory against the predicted time of a step. For every other strategy it keeps the reason
// why it is not on the front.
//
// Flags that were given, or are not at their default, stay as they are: the user has chosen them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/fault.h"
#include "planner/planner.h"

namespace shardlens::planner {

struct Candidate {
  Config config;  // ready for train
  std::string flags;
  int64_t device_bytes = 0;             // only for those on the front
  double step_seconds = 0;              // 0: it cannot be run
  std::optional<StepTime> step_time{};  // only on a GPU
  Problem rejected;                     // why; nothing: it is on the front
};

struct SearchResult {
  int64_t budget_bytes = 0;
  const Gpu* gpu = nullptr;  // null: the CPU
  std::vector<Candidate> candidates;
  std::vector<size_t> front;  // of candidates, the fastest first

  const Candidate& front_candidate(size_t i) const { return candidates[front[i]]; }
};

/// Searches from `config`. `given`: names of the flags that the user gave. `budget_bytes`: the
/// device memory that may be used, including memory outside the allocator; nothing: the GPU's.
SearchResult search_strategies(const Config& config, const std::vector<std::string>& given,
                               const PlanOptions& options, std::optional<int64_t> budget_bytes);

/// Writes the result as one JSON object: {"schema":"shardlens.search/1", ...}.
std::string search_json(const SearchResult& result);
std::string search_text(const SearchResult& result);

/// Returns the configurations that a search of `config` tries.
std::vector<Config> candidates_of(const Config& config, const std::vector<std::string>& given);

}  // namespace shardlens::planner
