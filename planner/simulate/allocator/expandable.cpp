// AllocatorModel's expandable segments: each is a range of addresses an eighth larger than the
// device, of which only as much is mapped as is needed, page by page.
#include <algorithm>

#include "base/check.h"
#include "planner/simulate/allocator/model.h"

namespace shardlens::planner {

int64_t AllocatorModel::page_bytes(Pool of) const {
  return of == Pool::small ? profiler::kSmallSegmentBytes : settings_.large_segment_bytes;
}

int64_t AllocatorModel::address_range_bytes(Pool of) const {
  return round_up(settings_.capacity_bytes + settings_.capacity_bytes / 8, page_bytes(of));
}

/// Returns a free, wholly mapped block of at least the request's size; nullptr if the device has
/// too little memory. Pages that were mapped before it ran out stay mapped.
AllocatorBlock* AllocatorModel::grow_segment(const Request& request) {
  Block* block = find_room(request);
  if (!block->is_mapped && !map(block, std::min(block->bytes, request.bytes))) return nullptr;
  while (block->bytes < request.bytes) {
    Block* next = block->next;  // without memory: free neighbours with memory are one block
    check(next != nullptr && next->is_free() && !next->is_mapped,
          "allocator: a segment grows into what is in use");
    if (!map(next, std::min(request.bytes - block->bytes, next->bytes))) return nullptr;
    block = next;
  }
  erase_free(block);
  return block;
}

/// Returns the first block of the lowest place where adjacent free blocks, mapped or not, are large
/// enough together.
AllocatorBlock* AllocatorModel::find_room(const Request& request) {
  for (Block* unmapped : pool(request.pool).streams[request.stream].unmapped_blocks()) {
    Block* first = unmapped;
    if (first->previous != nullptr && first->previous->is_free()) first = first->previous;
    int64_t room = 0;
    for (const Block* b = first; room < request.bytes && b != nullptr && b->is_free();
         b = b->next) {
      room += b->bytes;
    }
    if (room >= request.bytes) return first;
  }
  return new_range(request);
}

AllocatorBlock* AllocatorModel::new_range(const Request& request) {
  const Block origin = next_segment(request.stream, request.pool);
  Block* block = new_block(origin, 0, address_range_bytes(request.pool));
  block->is_mapped = false;
  insert_free(block);
  return block;
}

/// Maps whole pages for the first `bytes` of an unmapped block, which starts at a page.
bool AllocatorModel::map(Block* block, int64_t bytes) {
  check(!block->is_mapped && bytes > 0, "allocator: mapped memory is mapped again");
  check(block->offset_bytes % page_bytes(block->pool) == 0, "allocator: half a page is mapped");
  const int64_t mapped_bytes = round_up(bytes, page_bytes(block->pool));
  check(mapped_bytes <= block->bytes, "allocator: more is mapped than there are addresses");
  if (!take_memory(mapped_bytes)) return false;
  erase_free(block);
  const int64_t offset_bytes = block->offset_bytes;
  if (mapped_bytes < block->bytes) {
    Block* rest = new_block(*block, offset_bytes + mapped_bytes, block->bytes - mapped_bytes);
    rest->is_mapped = false;
    link(rest, block, block->next);
    insert_free(rest);
    block->bytes = mapped_bytes;
  }
  block->is_mapped = true;
  merge(block, block->previous);
  merge(block, block->next);
  insert_free(block);
  count(block->pool,
        [&](PoolCounters& counters) { counters.reserved_bytes.increase(mapped_bytes); });
  ++counters_.driver_allocations;
  tell(AllocatorEventKind::segment_map, *block, offset_bytes, mapped_bytes);
  return true;
}

/// Unmaps the whole pages within a free block; its ends stay free blocks.
void AllocatorModel::unmap(Block* block) {
  check(block->is_mapped && block->is_free(), "allocator: memory in use is unmapped");
  const int64_t page = page_bytes(block->pool);
  const int64_t block_end = block->offset_bytes + block->bytes;
  const int64_t begin = round_up(block->offset_bytes, page);
  const int64_t end = block_end / page * page;
  if (begin >= end) return;
  erase_free(block);
  if (begin > block->offset_bytes) {
    Block* before = new_block(*block, block->offset_bytes, begin - block->offset_bytes);
    link(before, block->previous, block);
    insert_free(before);
  }
  if (end < block_end) {
    Block* after = new_block(*block, end, block_end - end);
    link(after, block, block->next);
    insert_free(after);
  }
  block->offset_bytes = begin;
  block->bytes = end - begin;
  block->is_mapped = false;
  merge(block, block->previous);
  merge(block, block->next);
  insert_free(block);
  give_memory_back(end - begin);
  count(block->pool,
        [&](PoolCounters& counters) { counters.reserved_bytes.decrease(end - begin); });
  ++counters_.driver_frees;
  tell(AllocatorEventKind::segment_unmap, *block, begin, end - begin);
  if (block->is_split()) return;
  erase_free(block);  // its addresses go, too
  drop(block);
}

}  // namespace shardlens::planner
