// AllocatorModel's blocks: how they are made, linked, merged and kept.
#include <algorithm>
#include <new>

#include "base/check.h"
#include "planner/simulate/allocator/model.h"

namespace shardlens::planner {

using models::FreeBlockOrder;

/// Returns what counts before the address when a free block is chosen.
int64_t AllocatorModel::age_of_new(const Block& like) {
  switch (settings_.free_block_order) {
    case FreeBlockOrder::address:
      return 0;
    case FreeBlockOrder::block_age:
      return ++made_blocks_;
    case FreeBlockOrder::segment_age:
      return like.segment;
  }
  unreachable("order of free blocks out of range");
}

AllocatorBlock* AllocatorModel::new_block(const Block& like, int64_t offset_bytes, int64_t bytes) {
  const bool is_reused = !dropped_.empty();
  Block* const place = is_reused ? dropped_.back() : &blocks_.emplace_back();
  const BlockId id = is_reused ? place->id : static_cast<BlockId>(blocks_.size() - 1);
  if (is_reused) dropped_.pop_back();
  // Made where it stays: making it elsewhere and copying it takes 2 % of a large plan.
  return ::new (place) Block{.id = id,
                             .segment = like.segment,
                             .segment_address = like.segment_address,
                             .offset_bytes = offset_bytes,
                             .bytes = bytes,
                             .age = age_of_new(like),
                             .stream = like.stream,
                             .pool = like.pool};
}

void AllocatorModel::drop(Block* block) {
  check(block->is_free() && !block->is_listed, "allocator: a block that is known is dropped");
  dropped_.push_back(block);
}

void AllocatorModel::link(Block* block, Block* before, Block* after) {
  check(block != before && block != after, "a block would be its own neighbour");
  block->previous = before;
  block->next = after;
  if (before != nullptr) before->next = block;
  if (after != nullptr) after->previous = block;
}

void AllocatorModel::insert_free(Block* block) {
  if (block->is_mapped) block->searches_when_freed = pool(block->pool).searches;
  free_blocks(*block).insert(*block);
}

void AllocatorModel::erase_free(Block* block) { free_blocks(*block).erase(*block); }

/// Merges `from` into `into` and returns the bytes of `from`, which then no longer exists. Returns
/// 0 if they cannot be one block.
int64_t AllocatorModel::merge(Block* into, Block* from) {
  if (from == nullptr || !from->is_free() || from->is_mapped != into->is_mapped) return 0;
  check(from->segment == into->segment && from->stream == into->stream && from->pool == into->pool,
        "allocator: blocks of two segments are merged");
  check(!into->is_listed, "allocator: a listed block grows");
  check(into->previous == from || into->next == from, "allocator: strangers are merged");
  erase_free(from);
  if (into->previous == from) {
    into->offset_bytes = from->offset_bytes;
    link(into, from->previous, into->next);
  } else {
    link(into, into->previous, from->next);
  }
  into->bytes += from->bytes;
  drop(from);
  return from->bytes;
}

std::vector<const AllocatorBlock*> AllocatorModel::present_blocks() const {
  std::vector<bool> is_dropped(blocks_.size());
  for (const Block* block : dropped_) {
    check(!is_dropped[block->id], "a block is dropped twice");
    is_dropped[block->id] = true;
  }
  std::vector<const Block*> present;
  for (const Block& block : blocks_) {
    if (!is_dropped[block.id]) present.push_back(&block);
  }
  return present;
}

std::vector<int64_t> AllocatorModel::state(
    const std::function<int64_t(BlockId)>& purpose_of) const {
  std::vector<const Block*> present = present_blocks();
  // Among blocks of one size the order in which they were made may decide; the number of blocks
  // made before them does not matter.
  std::vector<int64_t> orders(blocks_.size());
  if (settings_.free_block_order == FreeBlockOrder::block_age) {
    std::ranges::sort(present, {}, &Block::age);
    for (size_t i = 0; i < present.size(); ++i) orders[present[i]->id] = static_cast<int64_t>(i);
  }
  std::ranges::sort(present, [](const Block* a, const Block* b) { return AddressOrder()(a, b); });
  std::vector<int64_t> state = {device_used_bytes_, outside_bytes_};
  for (const Block* block : present) {
    // A segment's number and address matter only in that they say where the next segment begins.
    const bool begins_segment = block->previous == nullptr;
    const bool ages = collects_garbage() && block->is_free();
    state.insert(state.end(),
                 {begins_segment, block->offset_bytes, block->bytes, block->requested_bytes,
                  block->stream, static_cast<int64_t>(block->pool), block->pending_events,
                  block->is_allocated, block->is_mapped, ages ? age_of(*block) : 0,
                  orders[block->id], block->is_allocated ? purpose_of(block->id) : 0});
  }
  return state;
}

void AllocatorModel::tell(AllocatorEventKind kind, const Block& block, int64_t offset_bytes,
                          int64_t bytes, bool is_split) {
  if (!listener_) return;
  listener_({.kind = kind,
             .stream = block.stream,
             .segment = block.segment,
             .offset_bytes = offset_bytes,
             .bytes = bytes,
             .is_split = is_split});
}

}  // namespace shardlens::planner
