// Follows what the caching allocator held at every moment of a recording, by the rules of blocks.h:
// the bytes given for every allocation, and where reserved memory is that no tensor uses.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "profiler/recording/blocks.h"
#include "profiler/recording/profile.h"
#include "profiler/report/address_map.h"
#include "profiler/report/reserved_parts.h"

namespace shardlens::profiler {

/// Follows the allocator by recorded events of the spaces `segment` and `device`. A segment's event
/// has a label if memory was mapped into an expandable segment, or unmapped, and none if a whole
/// segment was reserved or returned. Nonsensical events (of a damaged recording) are applied as far
/// as possible, as long as no size exceeds kMostBytes. The note in profile.h explains `hold` and
/// `release`.
class BlockTracker {
 public:
  /// Applies an event. Returns the bytes that an allocation was given, or a free gave back; 0 for
  /// all other events and for a free of an unknown address.
  int64_t take(const Event& event);

  const BlockTotals& totals() const { return totals_; }

  /// Returns the events that lead a new tracker to the present segments and blocks; each used block
  /// of tensors has a `hold`. Their time is 0, and every field that does not describe blocks has
  /// its default.
  std::vector<Event> snapshot(uint32_t mapped_label) const;

  /// Returns the segments by address, and the blocks that other streams still use.
  std::vector<ReservedSegment> segments() const;
  std::vector<UsedBlock> pending_blocks() const;

  /// Returns the bytes that an allocation at this address would be given; 0 if no free block that
  /// is large enough begins there.
  int64_t given_for(uint64_t address, int64_t requested) const;
  /// Returns the largest request that the free blocks of a stream, outside private pools, serve
  /// without the driver. Walks through all blocks.
  int64_t largest_fit_bytes(uint16_t stream) const;
  /// Returns the bytes of the largest free block of all streams.
  int64_t largest_free_bytes() const;

 private:
  static constexpr uint32_t kNone = AddressMap::kNone;

  struct Block {
    uint64_t address = 0;
    int64_t bytes = 0;
    int64_t requested = 0;
    uint32_t previous = kNone;  // in the segment
    uint32_t next = kNone;
    bool used = false;
    bool held = false;        // used by the allocator itself
    bool expandable = false;  // of its segment
    bool in_private = false;  // a private pool has its segment

    uint64_t end() const { return address + static_cast<uint64_t>(bytes); }
    bool is_whole() const { return previous == kNone && next == kNone; }
  };

  struct Segment {
    uint64_t end = 0;
    uint32_t first = kNone;
    int32_t private_pool = kNoPrivatePool;
    uint16_t stream = 0;
    Pool pool{};
    bool expandable = false;

    bool continues(const Segment& before) const {
      return expandable && before.expandable && pool == before.pool && stream == before.stream &&
             private_pool == before.private_pool;
    }
  };
  using Segments = std::map<uint64_t, Segment>;  // by their first address

  int64_t allocate(uint64_t address, int64_t requested);
  int64_t allocate_unplaced(uint64_t address, int64_t requested);
  int64_t release(uint64_t address);
  int64_t release_unplaced(uint64_t address);
  void hold(uint64_t address, int64_t bytes);
  void release_held(uint64_t address);
  uint32_t free_block_around(uint64_t address) const;
  uint32_t first_to_search(uint64_t segment_begin, uint32_t first, uint64_t address) const;
  void set_free(uint32_t index);

  void add_segment(const Event& event);
  void remove_segment(const Event& event);
  void remove_range(uint64_t begin, uint64_t end);
  void cut(Segments::iterator segment, uint64_t begin, uint64_t end);
  void add_chain(Segment segment, const std::vector<uint32_t>& blocks);
  void join(Segments::iterator left, Segments::iterator right);

  uint32_t keep(const Block& block);
  uint32_t new_block(const Block& block);
  uint32_t new_free_block(uint64_t begin, uint64_t end, bool expandable, bool in_private);
  void forget(uint32_t index);
  void link(uint32_t left, uint32_t right);
  void split(uint32_t index, int64_t bytes);
  void merge_with_next(uint32_t index);
  void count_free(const Block& block, int64_t sign);
  void count_used(const Block& block, int64_t sign);

  BlockTotals totals_;
  Segments segments_;
  std::vector<Block> blocks_;
  std::vector<uint32_t> unused_;         // of blocks_
  AddressMap by_address_;                // of blocks_ in segments
  AddressMap unplaced_;                  // of the others
  uint64_t freed_address_ = 0;           // the last block that was freed,
  int64_t freed_bytes_ = 0;              // and the bytes that it had been given
  uint64_t last_held_ = 0;               // address of the last block that was held
  std::map<uint64_t, int64_t> pending_;  // bytes of the blocks that are held now, by address
};

}  // namespace shardlens::profiler
