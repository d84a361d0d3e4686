// Finds the memory that a step leaves behind: what is alive at the peak, was made by an earlier
// step and does not belong to the state of the training.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "profiler/recording/profile.h"

namespace shardlens::profiler {

struct NamedAllocation;

/// Blocks of one line, caller and category.
struct KeptPlace {
  std::string label = {};
  std::string caller = {};
  Category category{};
  int64_t given_bytes = 0;
  int64_t count = 0;
  int64_t youngest_steps = 0;  // their ages
  int64_t oldest_steps = 0;
};

/// True for memory that a program keeps from step to step by design: parameters and their
/// gradients, the optimizer's state, and what libraries and collectives hold.
bool is_kept_by_design(Category category);

/// Returns the places of the blocks that are older than the current step and younger than the first
/// one, and that are not kept by design; the largest first.
std::vector<KeptPlace> kept_places(const std::vector<NamedAllocation>& alive);

/// Returns "1 step old", "0 to 10 steps old", or "" for what the current step has made.
std::string age_text(int64_t youngest_steps, int64_t oldest_steps);

}  // namespace shardlens::profiler
