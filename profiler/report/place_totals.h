// Totals allocations by the place that made them: 27 blocks of one line of a program are one row.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "profiler/recording/profile.h"
#include "profiler/report/report.h"

namespace shardlens::profiler {

/// The allocations of one category that one place made: a line of a program, a unit of a model. An
/// action of the schedule is part of the place.
struct PlaceTotal {
  int64_t given_bytes = 0;  // of all its allocations
  int64_t asked_bytes = 0;
  int64_t count = 0;
  int64_t largest_bytes = 0;   // of one allocation, as given
  int64_t smallest_bytes = 0;  //
  Category category{};
  std::string label;
  std::vector<std::string> names{};  // of its allocations, each once
  int32_t action_id = -1;
  std::string action;
  int64_t youngest_steps = 0;  // the ages of its allocations
  int64_t oldest_steps = 0;    //

  bool is_of_one_size() const { return largest_bytes == smallest_bytes; }
};

/// Returns the places of the allocations, the one with the most bytes first and equal ones in the
/// order of their first allocation in `tensors`. Their bytes add up to those of the allocations.
std::vector<PlaceTotal> place_totals(const std::vector<NamedAllocation>& tensors);

/// Returns "27 x 108.00 MiB", "30 of up to 108.00 MiB", or "" for a single block.
std::string count_text(const PlaceTotal& place);

}  // namespace shardlens::profiler
