// This header has the arithmetic of the caching allocator of CUDA memory in LibTorch 2.9 to 2.15,
// with its default settings (PYTORCH_ALLOC_CONF): how much it reserves from the driver for a
// request, and how much of a free block it gives. A recording has the bytes asked for, from which
// the bytes given follow.
//
// The allocator reserves *segments* from the driver and cuts them into *blocks*. It serves a
// request from the low end of a free block of its stream; the remainder stays a block if it is
// large enough, and otherwise is given with the request. Freed blocks merge with free neighbours of
// their segment. With expandable segments, memory is mapped range by range into one growing
// segment: ranges that touch are one segment, and every remainder stays a block. BlockTracker
// (block_tracker.h) applies all this to recorded events.
//
// The settings roundup_power2_divisions, max_split_size_mb and large_segment_size_mb are not
// modelled, since no part of Shardlens sets them. A segment of a private pool (CUDA graphs,
// torch.cuda.MemPool) serves requests to that pool only.
#pragma once

#include <cstdint>

#include "base/units.h"

namespace shardlens::profiler {

constexpr int64_t kBlockBytes = 512;                      // requests are rounded up to it
constexpr int64_t kSmallRequestBytes = int64_t{1} << 20;  // the largest request of the small pool
constexpr int64_t kSmallSegmentBytes = int64_t{2} << 20;
constexpr int64_t kLargeSegmentBytes = int64_t{20} << 20;
constexpr int64_t kOwnSegmentBytes = int64_t{10} << 20;  // from this size on a request has its own
constexpr int64_t kSegmentRoundingBytes = int64_t{2} << 20;
constexpr int64_t kLargeRemainderBytes = int64_t{1} << 20;  // up to this size not split off

/// The pool that a segment belongs to: blocks of one pool never serve requests of the other.
enum class Pool : uint8_t { small, large };

/// The number of a segment's private pool if it has none.
constexpr int32_t kNoPrivatePool = -1;

/// An event of a segment has its private pool in place of an action: -2 for pool 0, -3 for pool 1.
/// An action of a schedule is at least 0, and -1 is neither.
constexpr int32_t action_of_pool(int32_t private_pool) {
  return private_pool == kNoPrivatePool ? -1 : -2 - private_pool;
}
constexpr int32_t pool_of_action(int32_t action) {
  return action < -1 ? -2 - action : kNoPrivatePool;
}

/// Returns the bytes of the block that a request asks for: `bytes` rounded up to kBlockBytes, and
/// at least kBlockBytes, even for a request of 0 bytes.
constexpr int64_t rounded_request(int64_t bytes) {
  return bytes < kBlockBytes ? kBlockBytes : round_up(bytes, kBlockBytes);
}

constexpr Pool pool_of(int64_t rounded_bytes) {
  return rounded_bytes <= kSmallRequestBytes ? Pool::small : Pool::large;
}

/// Returns the bytes that the allocator reserves from the driver for a request that no free block
/// serves.
constexpr int64_t segment_bytes(int64_t rounded_bytes) {
  if (pool_of(rounded_bytes) == Pool::small) return kSmallSegmentBytes;
  if (rounded_bytes < kOwnSegmentBytes) return kLargeSegmentBytes;
  return round_up(rounded_bytes, kSegmentRoundingBytes);
}

/// Returns the size of the pages in which expandable segments of the pool are mapped, in bytes.
constexpr int64_t page_bytes(Pool pool) {
  return pool == Pool::small ? kSmallSegmentBytes : kLargeSegmentBytes;
}

/// True if a free block is split for a request; otherwise the request gets the whole block.
constexpr bool is_split(int64_t block_bytes, int64_t rounded_bytes, bool expandable) {
  const int64_t remainder = block_bytes - rounded_bytes;
  if (expandable || pool_of(rounded_bytes) == Pool::small) return remainder >= kBlockBytes;
  return remainder > kLargeRemainderBytes;
}

/// The allocator's bytes by what they are used for, at one moment. Without damage `reserved` is the
/// sum of the other fields, less `unplaced`.
struct BlockTotals {
  int64_t requested = 0;   // requested for tensors
  int64_t rounding = 0;    // given beyond the request
  int64_t pending = 0;     // freed, but kept until other streams are done with it
  int64_t split = 0;       // free beside a used block: LibTorch's inactive_split
  int64_t cached = 0;      // free in whole segments, and all that is free in expandable ones
  int64_t in_private = 0;  // free in private pools, and part of neither
  int64_t reserved = 0;    // reserved from the driver
  int64_t unplaced = 0;    // given outside all recorded segments; part of `allocated`

  int64_t allocated() const { return requested + rounding; }
  bool operator==(const BlockTotals&) const = default;
};

}  // namespace shardlens::profiler
