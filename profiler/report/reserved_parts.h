// Accounts for every byte that the caching allocator has reserved at one moment: what it has given,
// and why what is free does not serve the request that made it ask the driver for more. It is plain
// data in and plain data out, for recordings, PyTorch's snapshots and plans alike.
#pragma once

#include <cstdint>
#include <vector>

#include "profiler/recording/blocks.h"

namespace shardlens::profiler {

/// A segment, or a range that is mapped into an expandable one.
struct ReservedSegment {
  uint64_t address = 0;
  int64_t bytes = 0;
  int32_t private_pool = kNoPrivatePool;
  uint16_t stream = 0;
  Pool pool{};
  bool expandable = false;
};

/// A block that is not free. Its place is an index of the caller's, such as of a line of the
/// program; what blocks of one place hold is added up.
struct UsedBlock {
  uint64_t address = 0;
  int64_t given_bytes = 0;
  int64_t asked_bytes = 0;
  int64_t step = -1;  // in which it was allocated
  uint32_t place = 0;
  bool is_pending = false;  // freed, but other streams still use it
};

/// The request that decides which free memory is of use.
struct ReservedRequest {
  int64_t bytes = 0;  // 0: none is known, so that nothing is too small
  uint16_t stream = 0;
  int32_t private_pool = kNoPrivatePool;
};

/// Free memory of one kind, in pieces that a request can get as a whole.
struct FreePieces {
  int64_t bytes = 0;
  int64_t pieces = 0;
  int64_t largest = 0;      // bytes of the largest piece
  int64_t too_small = 0;    // of `bytes`, in pieces that are smaller than the request
  int64_t other_sizes = 0;  // of `bytes`, in pieces for requests above, or else up to, 1 MiB
  int64_t returnable = 0;   // of `bytes`, given back to the driver before an out-of-memory

  bool operator==(const FreePieces&) const = default;
};

/// The memory of a private pool, which only requests to this pool get.
struct PrivatePool {
  int32_t number = 0;
  int64_t reserved = 0;
  int64_t free = 0;
  std::vector<uint32_t> places;  // of its used blocks, the one with the most bytes first
};

/// Blocks of the same places that keep segments (or pages of expandable ones) from being whole: if
/// all of these blocks were gone, `free` and `used` would be free and whole.
struct SegmentHolder {
  std::vector<uint32_t> places;  // at most kMostHolderPlaces; empty: more, or only pending blocks
  int64_t segments = 0;
  int64_t blocks = 0;
  int64_t used = 0;  // bytes of its blocks in these segments
  int64_t free = 0;
  int64_t oldest_step = 0;  // in which a block was allocated
  int64_t youngest_step = 0;
};
constexpr size_t kMostHolderPlaces = 3;

/// The parts of reserved memory. `reserved` is the sum of requested, rounding, pending and the
/// bytes of the four kinds of free memory.
struct ReservedParts {
  int64_t reserved = 0;
  int64_t requested = 0;
  int64_t rounding = 0;
  int64_t pending = 0;
  int64_t unplaced = 0;            // given outside all segments; part of no other field
  FreePieces private_pools;        // free in private pools (CUDA graphs, torch.cuda.MemPool)
  FreePieces other_streams;        // free in segments of other streams than the request's
  FreePieces held;                 // free in segments that also have used blocks
  FreePieces whole;                // free in whole segments, and in whole pages of expandable ones
  std::vector<PrivatePool> pools;  // the largest first
  std::vector<SegmentHolder> holders;  // of `held`; the one that holds most free bytes first
  /// The largest request of the same stream and pool that needs no memory of the driver.
  int64_t largest_fit = 0;

  int64_t given() const { return requested + rounding; }
  int64_t free() const {
    return private_pools.bytes + other_streams.bytes + held.bytes + whole.bytes;
  }
  int64_t returnable() const {
    return private_pools.returnable + other_streams.returnable + held.returnable + whole.returnable;
  }
};

/// Divides reserved memory. Takes segments and blocks in any order; segments must not overlap, nor
/// must blocks. A block that lies in no segment is `unplaced`.
ReservedParts reserved_parts(std::vector<ReservedSegment> segments, std::vector<UsedBlock> blocks,
                             const ReservedRequest& request);

}  // namespace shardlens::profiler
