// Finds what a program repeats in its trace of work: the steps that a recording marks, or else what
// lies between two waits for the GPU. A round that repeats exactly is known better than one that
// was seen once, since the host's time for each item is the least of all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "profiler/recording/work.h"

namespace shardlens::planner {

/// A part of a trace. Memory that the driver gives or takes is left out, since it differs between
/// steps that are alike otherwise.
struct TraceRound {
  std::vector<size_t> items;  // indices, in order

  size_t size() const { return items.size(); }
};

struct Rounds {
  std::vector<TraceRound> rounds;  // the settled ones: all alike if `are_alike`
  bool are_steps = false;          // that the recording marks
  bool are_alike = false;
  std::vector<int64_t> host_ns;  // by item of a round, if they are alike
};

/// Returns the settled rounds; none if the trace has no work, or no steps and only copies.
Rounds settled_rounds(const profiler::WorkTrace& trace);

}  // namespace shardlens::planner
