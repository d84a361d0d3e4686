// Blocks of the modelled allocator, and the free blocks of one stream in one pool, kept in the
// order in which they are searched. Private to the allocator model.
//
// A segment is cut into blocks without gaps, linked in the order of their offsets. Free neighbours
// are merged, so that two free blocks are adjacent only if the memory of one of them is not mapped.
#pragma once

#include <cstdint>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "base/check.h"
#include "planner/simulate/allocator/hashed_streams.h"
#include "profiler/recording/blocks.h"

namespace shardlens::planner {

struct AllocatorBlock;

/// Orders free blocks: the smallest comes first, then the oldest if age counts (FreeBlockOrder),
/// then the one with the lowest address.
struct FreeKey {
  int64_t bytes = 0;
  int64_t age = 0;
  uint64_t segment_address = 0;
  int64_t offset_bytes = 0;
  AllocatorBlock* block = nullptr;

  bool operator<(const FreeKey& other) const {
    return std::tie(bytes, age, segment_address, offset_bytes) <
           std::tie(other.bytes, other.age, other.segment_address, other.offset_bytes);
  }
};

struct AllocatorBlock {
  uint32_t id = 0;
  uint32_t segment = 0;
  uint64_t segment_address = 0;  // see [Note: what the order of addresses is]
  int64_t offset_bytes = 0;      // in the segment
  int64_t bytes = 0;
  int64_t requested_bytes = 0;
  int64_t searches_when_freed = 0;  // of its pool
  int64_t age = 0;                  // see FreeBlockOrder
  AllocatorBlock* previous = nullptr;
  AllocatorBlock* next = nullptr;
  StreamIndex stream = 0;
  int pending_events = 0;  // other streams that may still use it
  profiler::Pool pool = profiler::Pool::small;
  bool is_allocated = false;
  bool is_mapped = true;   // false: addresses of an expandable segment without memory
  bool is_listed = false;  // in FreeBlocks; nobody else changes it
  std::set<FreeKey>::iterator place = {};  // among the free ones that are mapped

  bool is_split() const { return previous != nullptr || next != nullptr; }
  bool is_free() const { return !is_allocated && pending_events == 0; }
};

/// Orders blocks by address.
struct AddressOrder {
  bool operator()(const AllocatorBlock* a, const AllocatorBlock* b) const {
    return std::tie(a->segment_address, a->offset_bytes) <
           std::tie(b->segment_address, b->offset_bytes);
  }
};

/// The free blocks of one stream in one pool.
class FreeBlocks {
 public:
  using MappedBlocks = std::set<FreeKey>;

  const MappedBlocks& mapped_blocks() const { return mapped_; }
  const std::set<AllocatorBlock*, AddressOrder>& unmapped_blocks() const { return unmapped_; }

  size_t size() const { return mapped_.size() + unmapped_.size(); }

  /// `block` must be free and not in the list yet.
  void insert(AllocatorBlock& block) {
    check(block.is_free(), "a block in use is listed as free");
    check(!block.is_listed, "a block is listed as free twice");
    block.is_listed = true;
    if (!block.is_mapped) {
      check(unmapped_.insert(&block).second, "an unmapped block is free twice");
      return;
    }
    const FreeKey key = {block.bytes, block.age, block.segment_address, block.offset_bytes, &block};
    if (spare_.empty()) {
      const auto [place, is_new] = mapped_.insert(key);
      check(is_new, "a block is free twice");
      block.place = place;
      return;
    }
    MappedBlocks::node_type node = std::move(spare_.back());
    spare_.pop_back();
    node.value() = key;
    const auto inserted = mapped_.insert(std::move(node));
    check(inserted.inserted, "a block is free twice");
    block.place = inserted.position;
  }

  /// `block` must be in the list, with the size and place that it was inserted with.
  void erase(AllocatorBlock& block) {
    check(block.is_free(), "a free block was used before it left its list");
    check(block.is_listed, "a block leaves a list in which it is not");
    block.is_listed = false;
    if (block.is_mapped) {
      check(block.place->block == &block && block.place->bytes == block.bytes,
            "a free block changed in its list");
      spare_.push_back(mapped_.extract(block.place));
    } else {
      check(unmapped_.erase(&block) == 1, "a free block moved in its list");
    }
  }

 private:
  MappedBlocks mapped_;
  std::vector<MappedBlocks::node_type> spare_;  // of erased ones, to be used again
  std::set<AllocatorBlock*, AddressOrder> unmapped_;
};

}  // namespace shardlens::planner
