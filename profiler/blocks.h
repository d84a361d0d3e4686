// The arithmetic of LibTorch 2.11's caching allocator of CUDA memory with its default settings
// (PYTORCH_ALLOC_CONF): what it takes from the driver for a request, and how much of a free block
// it gives. A recording has what was asked for; what was given follows from it.
//
// The allocator takes *segments* from the driver and cuts them into *blocks*. A request is served
// from the low end of a free block of its stream; the remainder stays a block if it is large
// enough, and is given along otherwise. Freed blocks merge with free neighbours of their segment.
// With expandable segments, memory is mapped range by range into one growing segment: ranges that
// touch are one segment, and every remainder stays a block. BlockTracker (block_tracker.h) applies
// all this to recorded events.
//
// Not modelled, since no part of Shardlens sets it: roundup_power2_divisions, max_split_size_mb,
// large_segment_size_mb, private pools of CUDA graphs.
#pragma once

#include <cstdint>

namespace shardlens::profiler {

constexpr int64_t kBlockBytes = 512;                      // requests become multiples of it
constexpr int64_t kSmallRequestBytes = int64_t{1} << 20;  // the largest of the small pool
constexpr int64_t kSmallSegmentBytes = int64_t{2} << 20;
constexpr int64_t kLargeSegmentBytes = int64_t{20} << 20;
constexpr int64_t kOwnSegmentBytes = int64_t{10} << 20;  // from here on a segment of its own
constexpr int64_t kSegmentRoundingBytes = int64_t{2} << 20;
constexpr int64_t kLargeRemainderBytes = int64_t{1} << 20;  // one up to this is given along

/// Blocks of one pool never serve the other.
enum class Pool : uint8_t { small, large };

constexpr int64_t rounded_up(int64_t bytes, int64_t multiple) {
  return (bytes + multiple - 1) / multiple * multiple;
}

/// At least one block, also for a request of 0 bytes.
constexpr int64_t rounded_request(int64_t bytes) {
  return bytes < kBlockBytes ? kBlockBytes : rounded_up(bytes, kBlockBytes);
}

constexpr Pool pool_of(int64_t rounded_bytes) {
  return rounded_bytes <= kSmallRequestBytes ? Pool::small : Pool::large;
}

/// What is taken from the driver for a request that no free block serves.
constexpr int64_t segment_bytes(int64_t rounded_bytes) {
  if (pool_of(rounded_bytes) == Pool::small) return kSmallSegmentBytes;
  if (rounded_bytes < kOwnSegmentBytes) return kLargeSegmentBytes;
  return rounded_up(rounded_bytes, kSegmentRoundingBytes);
}

/// Expandable segments are mapped in pages of this size.
constexpr int64_t page_bytes(Pool pool) {
  return pool == Pool::small ? kSmallSegmentBytes : kLargeSegmentBytes;
}

/// Whether a free block is cut for a request, or given whole.
constexpr bool is_split(int64_t block_bytes, int64_t rounded_bytes, bool expandable) {
  const int64_t remainder = block_bytes - rounded_bytes;
  if (expandable || pool_of(rounded_bytes) == Pool::small) return remainder >= kBlockBytes;
  return remainder > kLargeRemainderBytes;
}

/// Bytes. Without damage `reserved` is the sum of the others, less `unplaced`.
struct BlockTotals {
  int64_t requested = 0;  // what tensors asked for
  int64_t rounding = 0;   // given beyond it
  int64_t pending = 0;    // freed, but kept until other streams are done with it
  int64_t split = 0;      // free beside a used block: LibTorch's inactive_split
  int64_t cached = 0;     // free in whole segments, and all that is free in expandable ones
  int64_t reserved = 0;   // taken from the driver
  int64_t unplaced = 0;   // given outside all segments that were recorded; part of `allocated`

  int64_t allocated() const { return requested + rounding; }
  bool operator==(const BlockTotals&) const = default;
};

}  // namespace shardlens::profiler
