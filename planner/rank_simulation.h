// What the simulated run of one rank says, whoever's program it is: ours (simulation.h) or a Python
// program's (pytorch_simulation.h).
#pragma once

#include <cstdint>

#include "planner/timeline.h"

namespace shardlens::planner {

/// Memory that a rank holds at most; reserved: with what its allocator keeps cached. On the CPU,
/// where nothing is cached, both are what was asked for.
struct SimulatedPeak {
  int64_t allocated_bytes = 0;
  int64_t reserved_bytes = 0;

  bool operator==(const SimulatedPeak&) const = default;
};

class RankSimulation {
 public:
  virtual ~RankSimulation() = default;

  /// Throws DeviceFull where the device has too little memory; the timeline then ends there.
  virtual void run() = 0;

  virtual const Timeline& timeline() const = 0;
  virtual SimulatedPeak peak() const = 0;
  /// Of steps alone, from the third on.
  virtual SimulatedPeak step_peak() const = 0;
  virtual int64_t pinned_peak_bytes() const = 0;
  virtual int64_t host_peak_bytes() const = 0;
  /// Stalls: how often the cache was given back to make room.
  virtual int64_t allocation_retries() const = 0;
};

}  // namespace shardlens::planner
