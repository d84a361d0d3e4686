// When a run saves checkpoints and which it keeps, as --checkpoint-every and its neighbours say.
#pragma once

#include <cstdint>

#include "planner/config/choices.h"
#include "planner/config/config.h"

namespace shardlens::planner {

/// The settings of --checkpoint-every, --checkpoint-async, --keep and --keep-by.
struct Checkpointing {
  bool wanted = false;
  int64_t every_steps = 0;  // 0: once an epoch
  bool asynchronous = true;
  int64_t keep = 0;  // 0: all
  KeepRule by = KeepRule::newest;
};

/// Reads those flags. Throws std::invalid_argument if a value is not one of their words, or if
/// checkpoints are asked for in a run that has no values to keep.
Checkpointing checkpointing_of(const Config& config);

}  // namespace shardlens::planner
