// Lays out the blocks that stood in an allocator before AllocatorModel's first request.
#include "planner/simulate/allocator/layout.h"

#include <algorithm>
#include <set>
#include <stdexcept>
#include <string>

#include "base/check.h"
#include "planner/simulate/allocator/model.h"

namespace shardlens::planner {

namespace {

using profiler::kBlockBytes;

void require(bool holds, const SegmentLayout& segment, const char* fault) {
  if (holds) return;
  throw std::invalid_argument("segment at " + std::to_string(segment.address) + ": " + fault +
                              "; give the layout that one allocator had at one moment");
}

void require_sound(const SegmentLayout& segment) {
  require(!segment.blocks.empty(), segment, "has no blocks");
  int64_t left_bytes = kUnlimitedBytes;
  bool was_free = false;
  for (const BlockLayout& block : segment.blocks) {
    require(block.bytes > 0 && block.bytes % kBlockBytes == 0, segment,
            "a block's size is not a multiple of 512 bytes");
    require(block.bytes <= left_bytes, segment, "is larger than any device");
    left_bytes -= block.bytes;
    require(block.requested_bytes >= 0 && block.requested_bytes <= block.bytes, segment,
            "a block is smaller than what was requested");
    require(block.is_held || !was_free, segment, "two free neighbours are not one block");
    was_free = !block.is_held;
  }
}

int64_t bytes_of(const SegmentLayout& segment) {
  int64_t bytes = 0;
  for (const BlockLayout& block : segment.blocks) bytes += block.bytes;
  return bytes;
}

}  // namespace

std::vector<BlockId> AllocatorModel::lay_out(const std::vector<SegmentLayout>& segments) {
  check(blocks_.empty() && segments_ == 0, "a layout comes after requests were made");
  if (settings_.expandable_segments) {
    throw std::invalid_argument(
        "a layout of expandable segments is not supported; replay from an empty allocator");
  }
  std::set<uint64_t> addresses;
  std::vector<BlockId> held;
  for (const SegmentLayout& segment : segments) {
    require_sound(segment);
    require(segment.stream < pending_.size(), segment, "belongs to a stream that is not known");
    require(addresses.insert(segment.address).second, segment, "is there twice");
    const int64_t bytes = bytes_of(segment);
    require(take_memory(bytes), segment, "does not fit on the device with those before it");
    Block* whole = add_segment({.segment = segments_++,
                                .segment_address = segment.address,
                                .stream = segment.stream,
                                .pool = segment.pool},
                               bytes);
    lowest_address_ = std::min(lowest_address_, segment.address);
    highest_address_ = std::max(highest_address_, segment.address);
    lay_out_blocks(whole, segment, held);
  }
  are_addresses_given_ = true;
  check_totals();
  return held;
}

/// Cuts a new segment into its blocks, and adds those that are held.
void AllocatorModel::lay_out_blocks(Block* rest, const SegmentLayout& segment,
                                    std::vector<BlockId>& held) {
  const size_t last = segment.blocks.size() - 1;
  for (size_t i = 0; i <= last; ++i) {
    const BlockLayout& layout = segment.blocks[i];
    Block* block = i < last ? split_low_end(rest, layout.bytes) : rest;
    if (layout.is_held) {
      block->is_allocated = true;
      block->requested_bytes = layout.requested_bytes;
      count_given(*block);
      held.push_back(block->id);
      continue;
    }
    insert_free(block);
    if (last == 0) continue;
    count(block->pool, [&](PoolCounters& counters) {
      counters.inactive_split.increase(1);
      counters.inactive_split_bytes.increase(layout.bytes);
    });
  }
}

}  // namespace shardlens::planner
