// The results of one rank's simulated run, for our own program (simulation.h) and for a Python
// program (planner/pytorch/simulation.h).
#pragma once

#include <cstdint>

#include "planner/simulate/timeline.h"

namespace shardlens::planner {

/// The most memory that a rank holds; `reserved_bytes` includes what its allocator keeps cached. On
/// the CPU, where nothing is cached, both are the bytes that were asked for.
struct SimulatedPeak {
  int64_t allocated_bytes = 0;
  int64_t reserved_bytes = 0;

  bool operator==(const SimulatedPeak&) const = default;
};

class RankSimulation {
 public:
  virtual ~RankSimulation() = default;

  /// Simulates the run. Throws DeviceFull if the device has too little memory; the timeline then
  /// ends there.
  virtual void run() = 0;

  virtual const Timeline& timeline() const = 0;
  virtual SimulatedPeak peak() const = 0;
  /// Returns the peak of only the steps, from the third one on.
  virtual SimulatedPeak step_peak() const = 0;
  virtual int64_t pinned_peak_bytes() const = 0;
  virtual int64_t host_peak_bytes() const = 0;
  /// Counts stalls: how often the cache was given back to make room.
  virtual int64_t allocation_retries() const = 0;
};

}  // namespace shardlens::planner
