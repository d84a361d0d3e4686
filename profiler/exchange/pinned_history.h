// Turns what a PyTorch snapshot says of pinned memory (its host_traces and host_segments) into
// events of a recording. PyTorch's host allocator gives whole segments, so a segment is a block.
#pragma once

#include <cstdint>
#include <vector>

#include "profiler/recording/profile.h"

namespace shardlens::profiler {

enum class PinnedAction : uint8_t { segment_alloc, segment_free, alloc, free_requested };
constexpr auto choice_words(PinnedAction) {
  return words("segment_alloc", "segment_free", "alloc", "free_requested");
}

struct PinnedEntry {
  int64_t time_us = 0;
  uint64_t address = 0;
  int64_t bytes = 0;
  uint32_t label = 0;  // of an alloc
  PinnedAction action{};
};

/// A segment that exists when the history ends.
struct PinnedSegment {
  uint64_t address = 0;
  int64_t bytes = 0;
  uint32_t label = 0;
  bool is_used = false;
};

struct PinnedHistory {
  std::vector<PinnedEntry> entries;
  std::vector<PinnedSegment> at_end;
};

/// Returns the events with those of pinned memory among them, by time. Segments that the history
/// does not make exist from its start. `start_us` is the time of the first event.
std::vector<Event> with_pinned(std::vector<Event> events, const PinnedHistory& history,
                               int64_t start_us);

}  // namespace shardlens::profiler
