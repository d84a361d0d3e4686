#include "planner/simulate/allocator/totals.h"

#include <set>
#include <string>
#include <vector>

#include "base/check.h"
#include "planner/simulate/allocator/model.h"

namespace shardlens::planner {

namespace {

void check_pool(const PoolCounters& counters, const PoolTotals& totals, const char* pool) {
  const auto require = [&](const AllocatorStat& counter, int64_t sum, const char* name) {
    check(counter.current == sum, [&] {
      return std::string("allocator: ") + name + " of the " + pool + " blocks counts " +
             std::to_string(counter.current) + ", but the blocks make " + std::to_string(sum);
    });
  };
  require(counters.allocations, totals.allocations, "allocations");
  require(counters.segments, totals.segments, "segments");
  require(counters.active, totals.active, "active");
  require(counters.inactive_split, totals.inactive_split, "inactive_split");
  require(counters.allocated_bytes, totals.allocated_bytes, "allocated_bytes");
  require(counters.reserved_bytes, totals.reserved_bytes, "reserved_bytes");
  require(counters.active_bytes, totals.active_bytes, "active_bytes");
  require(counters.inactive_split_bytes, totals.inactive_split_bytes, "inactive_split_bytes");
  require(counters.requested_bytes, totals.requested_bytes, "requested_bytes");
  check(totals.listed_blocks == totals.free_blocks,
        "allocator: the lists of free blocks have other blocks than are free");
}

PoolTotals operator+(const PoolTotals& a, const PoolTotals& b) {
  return {.allocations = a.allocations + b.allocations,
          .segments = a.segments + b.segments,
          .active = a.active + b.active,
          .inactive_split = a.inactive_split + b.inactive_split,
          .allocated_bytes = a.allocated_bytes + b.allocated_bytes,
          .reserved_bytes = a.reserved_bytes + b.reserved_bytes,
          .active_bytes = a.active_bytes + b.active_bytes,
          .inactive_split_bytes = a.inactive_split_bytes + b.inactive_split_bytes,
          .requested_bytes = a.requested_bytes + b.requested_bytes,
          .listed_blocks = a.listed_blocks + b.listed_blocks,
          .free_blocks = a.free_blocks + b.free_blocks};
}

/// Checks the place of a block in its segment: no gap before its neighbour, and merged with that
/// neighbour where both are free.
void check_neighbours(const AllocatorBlock& block) {
  check(block.bytes > 0, "allocator: an empty block");
  check(block.is_listed == block.is_free(), "allocator: a block is free, but in no list, or both");
  check(block.is_mapped || block.is_free(), "allocator: a block in use has no memory");
  const AllocatorBlock* next = block.next;
  if (block.previous == nullptr) {
    check(block.offset_bytes == 0, "allocator: a segment begins with a gap");
  }
  if (next == nullptr) return;
  check(next->previous == &block, "allocator: neighbours disagree");
  check(next->segment == block.segment && next->pool == block.pool && next->stream == block.stream,
        "allocator: neighbours of two segments");
  check(next->offset_bytes == block.offset_bytes + block.bytes,
        "allocator: a gap between two blocks, or both hold the same bytes");
  check(!block.is_free() || !next->is_free() || block.is_mapped != next->is_mapped,
        "allocator: two free neighbours are not merged");
}

void add_block(PoolTotals& totals, const AllocatorBlock& block, bool is_expandable) {
  if (block.is_mapped) totals.reserved_bytes += block.bytes;
  if (block.is_free()) {
    ++totals.free_blocks;
    if (is_expandable || !block.is_split()) return;
    ++totals.inactive_split;
    totals.inactive_split_bytes += block.bytes;
    return;
  }
  ++totals.active;
  totals.active_bytes += block.bytes;
  totals.requested_bytes += block.requested_bytes;
  if (!block.is_allocated) return;
  ++totals.allocations;
  totals.allocated_bytes += block.bytes;
}

/// Returns the mapped bytes of the segment that begins with this block.
int64_t mapped_bytes_of(const AllocatorBlock& first) {
  int64_t bytes = 0;
  for (const AllocatorBlock* block = &first; block != nullptr; block = block->next) {
    if (block->is_mapped) bytes += block->bytes;
  }
  return bytes;
}

}  // namespace

void check_agree(const AllocatorCounters& counters, const AllocatorTotals& totals) {
  check_pool(counters.small, totals.small, "small");
  check_pool(counters.large, totals.large, "large");
  check_pool(counters.all, totals.small + totals.large, "small and large");
  check(counters.oversize_allocations.current == totals.oversize_allocations,
        "allocator: oversize_allocations differs from the blocks");
  check(counters.oversize_segments.current == totals.oversize_segments,
        "allocator: oversize_segments differs from the segments");
}

AllocatorTotals AllocatorModel::totals() const {
  const bool is_expandable = settings_.expandable_segments;
  AllocatorTotals totals;
  for (const Block* present : present_blocks()) {
    const Block& block = *present;
    check_neighbours(block);
    PoolTotals& of_pool = block.pool == Pool::small ? totals.small : totals.large;
    add_block(of_pool, block, is_expandable);
    if (block.is_allocated && block.bytes >= settings_.max_split_bytes) {
      ++totals.oversize_allocations;
    }
    if (block.previous != nullptr) continue;
    const int64_t segment_bytes = mapped_bytes_of(block);
    totals.device_bytes += device_bytes_of(segment_bytes);
    if (is_expandable) continue;
    ++of_pool.segments;
    if (segment_bytes >= settings_.max_split_bytes) ++totals.oversize_segments;
  }
  for (const FreeBlocks& free : pool(Pool::small).streams) {
    totals.small.listed_blocks += static_cast<int64_t>(free.size());
  }
  for (const FreeBlocks& free : pool(Pool::large).streams) {
    totals.large.listed_blocks += static_cast<int64_t>(free.size());
  }
  return totals;
}

void AllocatorModel::check_addresses() const {
  std::set<uint64_t> addresses;
  for (const Block* block : present_blocks()) {
    if (block->previous != nullptr) continue;
    check(addresses.insert(block->segment_address).second,
          "allocator: two segments were given one address");
  }
}

void AllocatorModel::check_totals() const {
  if (are_addresses_given_) check_addresses();
  const AllocatorTotals sums = totals();
  check_agree(counters_, sums);
  check(device_used_bytes_ == sums.device_bytes + outside_used_bytes_,
        "allocator: the device's used bytes are not those of segments and outside memory");
  check(device_used_bytes_ <= settings_.capacity_bytes, "allocator: more is used than there is");
}

}  // namespace shardlens::planner
