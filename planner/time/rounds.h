// Finds what a program repeats in its trace of work. Best known are the steps that a recording
// marks. Where a CUDA graph has captured a step, its launches are the steps. A program that marks
// none has rounds that begin where a backward has ended, or that end with waits for the GPU, or
// that begin with the rarest piece of work that is asked for from the beginning to the end.
//
// A round that repeats exactly is known better than one that was seen once, since the host's time
// for each item is the least of all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
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
  std::vector<TraceRound> rounds = {};  // the settled ones: all alike if `are_alike`
  /// The words for what is taken to be a step: "a forward and a backward: the program marks none";
  /// empty for steps that the recording marks, and for the whole of a trace in which nothing
  /// repeats.
  std::string stand_for = {};
  bool are_steps = false;  // that the recording marks
  bool are_alike = false;
  size_t others = 0;  // rounds that do other work than those that are alike, among as many
  std::vector<int64_t> host_ns = {};  // by item of a round, if they are alike
};

/// Returns the settled rounds; none if the trace has no work, or no steps and only copies.
Rounds settled_rounds(const profiler::WorkTrace& trace);

}  // namespace shardlens::planner
