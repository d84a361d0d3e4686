#include "profiler/report/block_tracker.h"

#include <algorithm>

namespace shardlens::profiler {

int64_t BlockTracker::take(const Event& event) {
  if (event.kind == EventKind::hold) hold(event.address, event.value);
  if (event.kind == EventKind::release) release_held(event.address);
  const bool alloc = event.kind == EventKind::alloc;
  if (!alloc && event.kind != EventKind::free) return 0;
  if (event.space == Space::device) {
    return alloc ? allocate(event.address, event.value) : release(event.address);
  }
  if (event.space == Space::segment) alloc ? add_segment(event) : remove_segment(event);
  return 0;
}

int64_t BlockTracker::given_for(uint64_t address, int64_t requested) const {
  const uint32_t index = by_address_.find(address);
  if (index == kNone) return 0;
  const Block& block = blocks_[index];
  if (block.held) return block.bytes;
  const int64_t rounded = rounded_request(requested);
  if (block.used || block.bytes < rounded) return 0;
  return is_split(block.bytes, rounded, block.expandable) ? rounded : block.bytes;
}

int64_t BlockTracker::largest_fit_bytes(uint16_t stream) const {
  int64_t largest = 0;
  for (const auto& [address, segment] : segments_) {
    if (segment.stream != stream || segment.private_pool != kNoPrivatePool) continue;
    for (uint32_t i = segment.first; i != kNone; i = blocks_[i].next) {
      if (blocks_[i].used) continue;
      if (segment.pool == Pool::small) {
        largest = std::max(largest, std::min(kSmallRequestBytes, blocks_[i].bytes));
      } else if (blocks_[i].bytes > kSmallRequestBytes) {  // the other pool serves smaller requests
        largest = std::max(largest, blocks_[i].bytes);
      }
    }
  }
  return largest;
}

int64_t BlockTracker::largest_free_bytes() const {
  int64_t largest = 0;
  for (const auto& [address, segment] : segments_) {
    for (uint32_t i = segment.first; i != kNone; i = blocks_[i].next) {
      if (!blocks_[i].used) largest = std::max(largest, blocks_[i].bytes);
    }
  }
  return largest;
}

std::vector<Event> BlockTracker::snapshot(uint32_t mapped_label) const {
  std::vector<Event> events;
  for (const auto& [address, segment] : segments_) {
    // Expandable segments are written page by page, so that the sizes tell the pool.
    const auto whole = static_cast<int64_t>(segment.end - address);
    const int64_t part = segment.expandable ? page_bytes(segment.pool) : whole;
    for (int64_t done = 0; done < whole; done += part) {
      events.push_back({.address = address + static_cast<uint64_t>(done),
                        .value = std::min(part, whole - done),
                        .action = action_of_pool(segment.private_pool),
                        .label = segment.expandable ? mapped_label : 0,
                        .stream = segment.stream,
                        .space = Space::segment});
    }
    for (uint32_t i = segment.first; i != kNone; i = blocks_[i].next) {
      if (!blocks_[i].used) continue;
      events.push_back(
          {.address = blocks_[i].address, .value = blocks_[i].bytes, .kind = EventKind::hold});
    }
  }
  return events;
}

std::vector<ReservedSegment> BlockTracker::segments() const {
  std::vector<ReservedSegment> all;
  all.reserve(segments_.size());
  for (const auto& [address, segment] : segments_) {
    all.push_back({.address = address,
                   .bytes = static_cast<int64_t>(segment.end - address),
                   .private_pool = segment.private_pool,
                   .stream = segment.stream,
                   .pool = segment.pool,
                   .expandable = segment.expandable});
  }
  return all;
}

std::vector<UsedBlock> BlockTracker::pending_blocks() const {
  std::vector<UsedBlock> all;
  for (const auto& [address, bytes] : pending_) {
    all.push_back({.address = address, .given_bytes = bytes, .is_pending = true});
  }
  return all;
}

// --- tensors -------------------------------------------------------------------------------------

int64_t BlockTracker::allocate(uint64_t address, int64_t requested) {
  uint32_t index = by_address_.find(address);
  if (index != kNone && blocks_[index].held) {
    count_used(blocks_[index], -1);
    blocks_[index].held = false;
    pending_.erase(address);
    blocks_[index].requested = requested;
    count_used(blocks_[index], 1);
    return blocks_[index].bytes;
  }
  if (index != kNone && blocks_[index].used) {  // its free is missing
    release(address);
    index = by_address_.find(address);
  }
  const int64_t rounded = rounded_request(requested);
  if (index == kNone || blocks_[index].bytes < rounded) {
    return allocate_unplaced(address, requested);
  }
  count_free(blocks_[index], -1);
  if (is_split(blocks_[index].bytes, rounded, blocks_[index].expandable)) split(index, rounded);
  Block& block = blocks_[index];
  block.used = true;
  block.requested = requested;
  count_used(block, 1);
  return block.bytes;
}

int64_t BlockTracker::release(uint64_t address) {
  const uint32_t index = by_address_.find(address);
  if (index == kNone || !blocks_[index].used || blocks_[index].held) {
    return release_unplaced(address);
  }
  freed_address_ = address;
  freed_bytes_ = blocks_[index].bytes;
  set_free(index);
  return freed_bytes_;
}

/// Marks the block as free and merges it with free neighbours.
void BlockTracker::set_free(uint32_t index) {
  Block& block = blocks_[index];
  count_used(block, -1);
  if (block.held) pending_.erase(block.address);
  block.used = block.held = false;
  const uint32_t previous = block.previous;
  if (block.next != kNone && !blocks_[block.next].used) {
    count_free(blocks_[block.next], -1);
    merge_with_next(index);
  }
  if (previous != kNone && !blocks_[previous].used) {
    count_free(blocks_[previous], -1);
    merge_with_next(previous);
    index = previous;
  }
  count_free(blocks_[index], 1);
}

/// Splits the block off the free block around it, and marks it as held.
void BlockTracker::hold(uint64_t address, int64_t bytes) {
  if (bytes == 0 && address == freed_address_) bytes = freed_bytes_;
  uint32_t index = free_block_around(address);
  if (bytes <= 0 || index == kNone) return;
  const uint64_t block_end = blocks_[index].end();
  if (static_cast<uint64_t>(bytes) > block_end - address) return;
  count_free(blocks_[index], -1);
  if (blocks_[index].address < address) {
    split(index, static_cast<int64_t>(address - blocks_[index].address));
    count_free(blocks_[index], 1);
    index = blocks_[index].next;
    count_free(blocks_[index], -1);
  }
  if (blocks_[index].bytes > bytes) split(index, bytes);
  Block& block = blocks_[index];
  block.used = block.held = true;
  block.requested = 0;
  count_used(block, 1);
  pending_[address] = block.bytes;
  last_held_ = address;
}

void BlockTracker::release_held(uint64_t address) {
  const uint32_t index = by_address_.find(address);
  if (index != kNone && blocks_[index].held) set_free(index);
}

uint32_t BlockTracker::free_block_around(uint64_t address) const {
  uint32_t index = by_address_.find(address);
  if (index == kNone) {
    auto segment = segments_.upper_bound(address);
    if (segment == segments_.begin()) return kNone;
    segment = std::prev(segment);
    index = first_to_search(segment->first, segment->second.first, address);
    while (index != kNone && blocks_[index].end() <= address) index = blocks_[index].next;
  }
  return index == kNone || blocks_[index].used ? kNone : index;
}

/// Returns the block from which to walk to an address: the last held one, since a list of a
/// segment's blocks is in order, or else the segment's first.
uint32_t BlockTracker::first_to_search(uint64_t segment_begin, uint32_t first,
                                       uint64_t address) const {
  if (last_held_ < segment_begin || last_held_ > address) return first;
  const uint32_t last = by_address_.find(last_held_);
  return last == kNone ? first : last;
}

int64_t BlockTracker::allocate_unplaced(uint64_t address, int64_t requested) {
  release_unplaced(address);
  const Block block{
      .address = address, .bytes = rounded_request(requested), .requested = requested};
  unplaced_.insert(address, keep(block));
  count_used(block, 1);
  totals_.unplaced += block.bytes;
  return block.bytes;
}

int64_t BlockTracker::release_unplaced(uint64_t address) {
  const uint32_t index = unplaced_.erase(address);
  if (index == kNone) return 0;
  const int64_t given = blocks_[index].bytes;
  count_used(blocks_[index], -1);
  totals_.unplaced -= given;
  unused_.push_back(index);
  return given;
}

// --- segments ------------------------------------------------------------------------------------

void BlockTracker::add_segment(const Event& event) {
  if (event.value <= 0) return;
  const uint64_t begin = event.address;
  const uint64_t end = begin + static_cast<uint64_t>(event.value);
  if (end < begin) return;
  remove_range(begin, end);  // its free may be missing
  const bool expandable = event.label != 0;
  const bool is_small =
      expandable ? event.value % page_bytes(Pool::large) != 0 : event.value <= kSmallSegmentBytes;
  const auto segment =
      segments_
          .emplace(begin,
                   Segment{.end = end,
                           .first = new_free_block(begin, end, expandable, event.action < -1),
                           .private_pool = pool_of_action(event.action),
                           .stream = event.stream,
                           .pool = is_small ? Pool::small : Pool::large,
                           .expandable = expandable})
          .first;
  totals_.reserved += event.value;
  const auto right = segments_.find(end);
  if (right != segments_.end() && right->second.continues(segment->second)) join(segment, right);
  if (segment == segments_.begin()) return;
  const auto left = std::prev(segment);
  if (left->second.end == begin && segment->second.continues(left->second)) join(left, segment);
}

void BlockTracker::remove_segment(const Event& event) {
  auto end = event.address + static_cast<uint64_t>(std::max<int64_t>(event.value, 0));
  const auto whole = segments_.find(event.address);
  if (event.value <= 0 && whole != segments_.end()) end = whole->second.end;
  if (end > event.address) remove_range(event.address, end);
}

void BlockTracker::remove_range(uint64_t begin, uint64_t end) {
  auto segment = segments_.upper_bound(begin);
  if (segment != segments_.begin()) --segment;
  while (segment != segments_.end() && segment->first < end) {
    const auto next = std::next(segment);
    const uint64_t segment_end = segment->second.end;
    if (segment_end > begin && segment->second.expandable) {
      cut(segment, std::max(begin, segment->first), std::min(end, segment_end));
    } else if (segment_end > begin) {
      cut(segment, segment->first, segment_end);
    }
    segment = next;
  }
}

/// Removes the range from a segment, and leaves the parts below and above it as segments of their
/// own.
void BlockTracker::cut(Segments::iterator segment, uint64_t begin, uint64_t end) {
  const Segment old = segment->second;
  segments_.erase(segment);
  totals_.reserved -= static_cast<int64_t>(end - begin);
  std::vector<uint32_t> below;
  std::vector<uint32_t> above;
  for (uint32_t index = old.first, next = kNone; index != kNone; index = next) {
    const Block block = blocks_[index];
    next = block.next;
    if (block.end() <= begin || block.address >= end) {
      (block.end() <= begin ? below : above).push_back(index);
      continue;
    }
    block.used ? count_used(block, -1) : count_free(block, -1);
    if (block.held) pending_.erase(block.address);
    forget(index);
    if (block.address < begin)
      below.push_back(new_free_block(block.address, begin, true, block.in_private));
    if (block.end() > end)
      above.push_back(new_free_block(end, block.end(), true, block.in_private));
  }
  add_chain(old, below);
  add_chain(old, above);
}

void BlockTracker::add_chain(Segment segment, const std::vector<uint32_t>& blocks) {
  if (blocks.empty()) return;
  for (size_t i = 0; i + 1 < blocks.size(); ++i) link(blocks[i], blocks[i + 1]);
  segment.first = blocks.front();
  segment.end = blocks_[blocks.back()].end();
  blocks_[blocks.front()].previous = kNone;
  blocks_[blocks.back()].next = kNone;
  segments_[blocks_[segment.first].address] = segment;
}

void BlockTracker::join(Segments::iterator left, Segments::iterator right) {
  uint32_t last = left->second.first;
  while (blocks_[last].next != kNone) last = blocks_[last].next;
  const uint32_t first = right->second.first;
  link(last, first);
  // Both blocks count as cached, and so does the merged one.
  if (!blocks_[last].used && !blocks_[first].used) merge_with_next(last);
  left->second.end = right->second.end;
  segments_.erase(right);
}

// --- blocks --------------------------------------------------------------------------------------

uint32_t BlockTracker::keep(const Block& block) {
  if (unused_.empty()) {
    blocks_.push_back(block);
    return static_cast<uint32_t>(blocks_.size() - 1);
  }
  const uint32_t index = unused_.back();
  unused_.pop_back();
  blocks_[index] = block;
  return index;
}

uint32_t BlockTracker::new_block(const Block& block) {
  const uint32_t index = keep(block);
  by_address_.insert(block.address, index);
  return index;
}

uint32_t BlockTracker::new_free_block(uint64_t begin, uint64_t end, bool expandable,
                                      bool in_private) {
  const Block block{.address = begin,
                    .bytes = static_cast<int64_t>(end - begin),
                    .expandable = expandable,
                    .in_private = in_private};
  count_free(block, 1);
  return new_block(block);
}

void BlockTracker::forget(uint32_t index) {
  by_address_.erase(blocks_[index].address);
  unused_.push_back(index);
}

void BlockTracker::link(uint32_t left, uint32_t right) {
  blocks_[left].next = right;
  if (right != kNone) blocks_[right].previous = left;
}

void BlockTracker::split(uint32_t index, int64_t bytes) {
  const Block whole = blocks_[index];
  const uint32_t remainder = new_block({.address = whole.address + static_cast<uint64_t>(bytes),
                                        .bytes = whole.bytes - bytes,
                                        .expandable = whole.expandable,
                                        .in_private = whole.in_private});
  blocks_[index].bytes = bytes;
  link(remainder, whole.next);
  link(index, remainder);
  count_free(blocks_[remainder], 1);
}

void BlockTracker::merge_with_next(uint32_t index) {
  const uint32_t next = blocks_[index].next;
  blocks_[index].bytes += blocks_[next].bytes;
  link(index, blocks_[next].next);
  forget(next);
}

void BlockTracker::count_free(const Block& block, int64_t sign) {
  if (block.in_private) {
    totals_.in_private += sign * block.bytes;
    return;
  }
  const bool cached = block.expandable || block.is_whole();
  (cached ? totals_.cached : totals_.split) += sign * block.bytes;
}

void BlockTracker::count_used(const Block& block, int64_t sign) {
  if (block.held) {
    totals_.pending += sign * block.bytes;
    return;
  }
  totals_.requested += sign * block.requested;
  totals_.rounding += sign * (block.bytes - block.requested);
}

}  // namespace shardlens::profiler
