// Exports recordings as a trace that Perfetto and Chrome open (JSON): one process for each rank,
// with its memory by category as counters and its phases, steps and actions as slices.
#pragma once

#include <cstddef>
#include <cstdint>
#include <ostream>

#include "profiler/exchange/event_source.h"

namespace shardlens::profiler {

/// Writes one rank after another, so that only one recording at a time is in memory.
class PerfettoWriter {
 public:
  /// `start_realtime_ns` is the start of the trace: the earliest of the ranks' starts.
  PerfettoWriter(std::ostream& out, int64_t start_realtime_ns);

  /// Adds one rank. Its counters have at most `most_points` points, with the peak among them.
  void add(const EventSource& source, size_t most_points);
  /// Ends the trace. Call it once, after the last rank.
  void finish();

 private:
  std::ostream& out_;
  int64_t start_realtime_ns_;
  bool first_ = true;
};

}  // namespace shardlens::profiler
