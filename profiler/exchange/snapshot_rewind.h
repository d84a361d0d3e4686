// Finds the state of PyTorch's allocator before the history of a memory snapshot. A snapshot has
// the segments and blocks at its end, and the last events before it: going back through them leaves
// what was there when the history began.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "base/choice.h"
#include "profiler/exchange/segment_ranges.h"
#include "profiler/recording/profile.h"

namespace shardlens::profiler {

enum class TraceAction : uint8_t {
  alloc,
  free_requested,
  free_completed,
  segment_alloc,
  segment_free,
  segment_map,
  segment_unmap,
  oom,
};
constexpr auto choice_words(TraceAction) {
  return words("alloc", "free_requested", "free_completed", "segment_alloc", "segment_free",
               "segment_map", "segment_unmap", "oom");
}

/// One event of a history, in the snapshot's own terms.
struct TraceEntry {
  int64_t time_us = 0;
  uint64_t address = 0;
  int64_t bytes = 0;
  int64_t given_bytes = 0;  // of an allocated block; 0: unknown
  int64_t stream = 0;
  int32_t private_pool = kNoPrivatePool;
  uint32_t label = 0;
  TraceAction action{};
  Category category = Category::other;
  bool says_size = false;  // the entry itself has given_bytes
};

constexpr bool is_mapping(TraceAction action) {
  return action == TraceAction::segment_map || action == TraceAction::segment_unmap;
}

/// A block at one moment; the table has it by its address.
struct SnapshotBlock {
  int64_t bytes = 0;        // requested
  int64_t given_bytes = 0;  // 0: unknown
  int64_t stream = 0;
  uint32_t label = 0;
  Category category = Category::other;
  bool is_pending = false;  // freed, but other streams still use it
};

/// The allocator's segments and used blocks at one moment.
struct SnapshotState {
  SegmentRanges segments;
  std::map<uint64_t, SnapshotBlock> blocks;
};

/// The entries of a history that nothing explains, and the blocks that it leaves open.
struct RewindDoubts {
  int64_t contradictions = 0;  // entries that do not fit the state after them
  int64_t unknown_sizes = 0;   // blocks that may be up to kLargeRemainderBytes larger
};

/// Turns the state after the last entry into that before the first one, and gives each entry of an
/// allocation the block's size if the block is alive at the end. Afterwards every block has a size:
/// the snapshot's own, or that which follows from the allocator's rules (blocks.h), the blocks
/// beside it and the entries.
RewindDoubts rewind(SnapshotState& state, std::vector<TraceEntry>& entries);

}  // namespace shardlens::profiler
