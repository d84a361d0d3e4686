// How long a step takes where several ranks were recorded: their tasks are simulated together, and
// a collective begins when all its ranks can begin it, as a pipeline's stages wait for each other.
//
// The parts of a collective are matched by its communicator and by how many came before on it;
// sends and receives by their pair of ranks. Ranks that were not recorded are taken to come at
// once.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "planner/time/step_time.h"

namespace shardlens::planner {

struct WorldTime {
  std::vector<StepTime> ranks;  // of each trace, with its waits for the others
  size_t slowest = 0;           // index into `ranks`
  int64_t meetings = 0;         // collectives of two or more of these ranks
  std::vector<std::string> doubts;
};

/// Returns the times of ranks; their traces are in the order of the ranks' numbers.
WorldTime world_time(std::span<const profiler::WorkTrace> traces, const Gpu& gpu,
                     const StepTimeOptions& options = {});

}  // namespace shardlens::planner
