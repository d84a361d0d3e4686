#include "profiler/exchange/snapshot_rewind.h"

#include <algorithm>
#include <iterator>

#include "profiler/recording/blocks.h"

namespace shardlens::profiler {

namespace {

/// Undoes a history's entries, the last one first.
class Rewinder {
 public:
  explicit Rewinder(SnapshotState& state) : segments_(state.segments), blocks_(state.blocks) {}

  int64_t run(std::vector<TraceEntry>& entries) {
    for (auto entry = entries.rbegin(); entry != entries.rend(); ++entry) undo(*entry);
    return contradictions_;
  }

 private:
  void undo(TraceEntry& entry) {
    switch (entry.action) {
      case TraceAction::alloc:
        return undo_alloc(entry);
      case TraceAction::free_requested:
        return undo_request(entry);
      case TraceAction::free_completed:
        if (blocks_.contains(entry.address)) ++contradictions_;
        blocks_[entry.address] = block_of(entry);
        return;
      case TraceAction::segment_alloc:
      case TraceAction::segment_map:
        return undo_segment(entry);
      case TraceAction::segment_free:
      case TraceAction::segment_unmap:
        return undo_return(entry);
      case TraceAction::oom:
        return;
    }
  }

  void undo_alloc(TraceEntry& entry) {
    const auto block = blocks_.find(entry.address);
    if (block == blocks_.end()) {
      ++contradictions_;
      return;
    }
    const int64_t given_bytes = block->second.given_bytes;
    if (given_bytes != 0 && !entry.says_size) entry.given_bytes = given_bytes;
    blocks_.erase(block);
  }

  /// A block whose free was requested and not completed is pending.
  void undo_request(const TraceEntry& entry) {
    const auto [block, missing] = blocks_.try_emplace(entry.address, block_of(entry));
    if (missing || !block->second.is_pending) ++contradictions_;
    block->second.is_pending = false;
    block->second.bytes = entry.bytes;
    block->second.category = entry.category;
  }

  /// Older snapshots tell the private pool of segments at the end, but not in their history.
  void undo_segment(TraceEntry& entry) {
    const auto after = segments_.ranges().upper_bound(entry.address);
    if (after != segments_.ranges().begin() && entry.private_pool == kNoPrivatePool) {
      const SegmentRange& range = std::prev(after)->second;
      if (entry.address < range.end) entry.private_pool = range.private_pool;
    }
    segments_.remove(entry.address, end_of(entry));
  }

  void undo_return(const TraceEntry& entry) {
    const bool mapped = entry.action == TraceAction::segment_unmap;
    const bool is_small =
        mapped ? entry.bytes % page_bytes(Pool::large) != 0 : entry.bytes <= kSmallSegmentBytes;
    segments_.add(entry.address, {.end = end_of(entry),
                                  .stream = entry.stream,
                                  .private_pool = entry.private_pool,
                                  .expandable = mapped,
                                  .small = is_small});
  }

  static SnapshotBlock block_of(const TraceEntry& entry) {
    return {.bytes = entry.bytes,
            .stream = entry.stream,
            .category = entry.category,
            .is_pending = true};
  }
  static uint64_t end_of(const TraceEntry& entry) {
    return entry.address + static_cast<uint64_t>(entry.bytes);
  }

  SegmentRanges& segments_;
  std::map<uint64_t, SnapshotBlock>& blocks_;
  int64_t contradictions_ = 0;
};

/// [Note: sizes of blocks that are freed later]
/// A snapshot has the sizes of the blocks that are alive at its end. Of a block that was alive at
/// the start and is freed in the history, only the request is known. Its size is the request,
/// rounded up, if the allocator splits every block of its kind. In the large pool a block may also
/// have kept a remainder of up to 1 MiB, since no block there is smaller than that:
///  - If up to 1 MiB is unused between the block and the next one, the block has the whole gap.
///  - If there is more, a free block follows. The allocator serves a request from a free block's
///    low end, so the first allocation in the gap, if it comes before the block is freed, tells
///    where the block ends.
///  - Without such an allocation nothing in the history depends on the remainder, which counts as
///    free, and the block's size is in doubt.
class SizeFinder {
 public:
  explicit SizeFinder(SnapshotState& state) : state_(state) {}

  /// Returns the number of blocks whose size is in doubt.
  int64_t run(const std::vector<TraceEntry>& entries) {
    for (auto block = state_.blocks.begin(); block != state_.blocks.end(); ++block) {
      if (block->second.given_bytes == 0) settle(block);
    }
    for (const TraceEntry& entry : entries) take(entry);
    return in_doubt_;
  }

 private:
  using Blocks = std::map<uint64_t, SnapshotBlock>;

  void settle(Blocks::iterator block) {
    const int64_t rounded = rounded_request(block->second.bytes);
    block->second.given_bytes = rounded;
    const SegmentRange* const segment = segment_of(block->first);
    if (segment == nullptr || segment->expandable || segment->small) return;
    const auto next = std::next(block);
    const uint64_t limit =
        next == state_.blocks.end() ? segment->end : std::min(segment->end, next->first);
    const auto unused = static_cast<int64_t>(limit - block->first) - rounded;
    if (unused > kLargeRemainderBytes) limits_[block->first] = limit;
    if (unused > 0 && unused <= kLargeRemainderBytes) block->second.given_bytes += unused;
  }

  const SegmentRange* segment_of(uint64_t address) const {
    const auto& ranges = state_.segments.ranges();
    const auto after = ranges.upper_bound(address);
    if (after == ranges.begin()) return nullptr;
    const SegmentRange& range = std::prev(after)->second;
    return address < range.end ? &range : nullptr;
  }

  void take(const TraceEntry& entry) {
    if (entry.action == TraceAction::alloc) return take_alloc(entry.address);
    if (entry.action == TraceAction::free_completed) in_doubt_ += limits_.erase(entry.address);
  }

  void take_alloc(uint64_t address) {
    auto open = limits_.upper_bound(address);
    if (open == limits_.begin()) return;
    open = std::prev(open);
    if (address == open->first || address >= open->second) return;
    SnapshotBlock& block = state_.blocks.at(open->first);
    const auto given = static_cast<int64_t>(address - open->first);
    if (given >= block.given_bytes && given - block.given_bytes <= kLargeRemainderBytes) {
      block.given_bytes = given;
    }
    limits_.erase(open);
  }

  SnapshotState& state_;
  std::map<uint64_t, uint64_t> limits_;  // by the address of a block before a gap: the gap's end
  int64_t in_doubt_ = 0;
};

}  // namespace

RewindDoubts rewind(SnapshotState& state, std::vector<TraceEntry>& entries) {
  RewindDoubts doubts;
  doubts.contradictions = Rewinder(state).run(entries);
  doubts.unknown_sizes = SizeFinder(state).run(entries);
  return doubts;
}

}  // namespace shardlens::profiler
