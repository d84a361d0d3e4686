// Exports recordings as a trace that Perfetto and Chrome open (JSON): one process for each rank,
// with its memory by category and its reserved memory as counters and its phases, steps and actions
// as slices. A rank whose work was traced has a process more: a step as it is predicted to run on
// the GPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "profiler/exchange/event_source.h"

namespace shardlens::profiler {

/// A stretch of time on a stream of the GPU, or of its host.
struct SimulatedSlice {
  std::string name;
  std::string from;  // the operator of PyTorch that asked for it; "" for none
  int track = 0;     // 0: the host; else a stream, from 1 on
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
};

/// A step of a rank with predicted lengths.
struct SimulatedStep {
  std::string title;
  std::vector<SimulatedSlice> slices;  // begin at the time of the recorded step
};

/// Predicts a step from a recording's trace of work, which this room does not know how to do.
/// Nothing: the recording has none.
using SimulateStep = std::function<std::optional<SimulatedStep>(const std::string& recording)>;

/// Writes one rank after another, so that only one recording at a time is in memory.
class PerfettoWriter {
 public:
  /// `start_realtime_ns` is the start of the trace: the earliest of the ranks' starts.
  PerfettoWriter(std::ostream& out, int64_t start_realtime_ns);

  /// Adds one rank. Its counters have at most `most_points` points, with the peak among them.
  void add(const EventSource& source, size_t most_points);
  /// Adds a simulated step of the rank.
  void add(const Header& header, const SimulatedStep& step);
  /// Ends the trace. Call it once, after the last rank.
  void finish();

 private:
  std::ostream& out_;
  int64_t start_realtime_ns_;
  bool first_ = true;
};

}  // namespace shardlens::profiler
