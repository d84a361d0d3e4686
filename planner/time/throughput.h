// Finds how much a step trains on, from the operators that read a batch: an embedding's indices are
// tokens, the first convolution's images are samples.
#pragma once

#include <cstddef>

#include "profiler/recording/work.h"

namespace shardlens::planner {

/// The batch of one step; 0 where it is not known.
struct Throughput {
  double samples = 0;
  double tokens = 0;
};

/// Returns it for the items of a trace from `begin` up to `end`.
Throughput throughput_of(const profiler::WorkTrace& trace, size_t begin, size_t end);

}  // namespace shardlens::planner
