// Turns the history of a memory snapshot into the events of a recording.
#pragma once

#include <cstdint>
#include <vector>

#include "profiler/exchange/snapshot_rewind.h"
#include "profiler/recording/profile.h"

namespace shardlens::profiler {

struct SnapshotEvents {
  std::vector<Event> events;
  int64_t start_us = 0;   // time of the first entry
  int64_t allocated = 0;  // bytes at the end, as a BlockTracker counts them
  int64_t reserved = 0;
  int64_t start_allocated = 0;  // bytes before the first entry
  int64_t start_reserved = 0;
  int64_t misplaced = 0;        // allocations at an address where no free block began
  int64_t resized = 0;          // allocations with another size than the rules of blocks.h give
};

/// Returns the events that lead to the state at the start, then those of the entries. Every block
/// gets the place and the size that the snapshot tells. `mapped_label` is the label of memory in
/// expandable segments. Throws std::invalid_argument for more than 2^16 streams.
SnapshotEvents snapshot_events(const SnapshotState& start, const std::vector<TraceEntry>& entries,
                               uint32_t mapped_label);

}  // namespace shardlens::profiler
