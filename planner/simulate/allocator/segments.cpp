// The memory that AllocatorModel takes from the device and gives back: segments, the limit, and the
// ways in which it makes room when the device is full.
#include <algorithm>
#include <stdexcept>
#include <string>

#include "base/check.h"
#include "planner/simulate/allocator/model.h"

namespace shardlens::planner {

namespace {

constexpr int64_t kDevicePageBytes = int64_t{2} << 20;

}  // namespace

/// Returns the bytes of the whole pages that hold `bytes`.
int64_t AllocatorModel::device_bytes_of(int64_t bytes) { return round_up(bytes, kDevicePageBytes); }

bool AllocatorModel::take_memory(int64_t bytes) {
  check(bytes >= 0, "allocator: memory of a negative size");
  const int64_t pages_bytes = device_bytes_of(bytes);
  if (pages_bytes > device_free_bytes()) return false;
  device_used_bytes_ += pages_bytes;
  return true;
}

void AllocatorModel::give_memory_back(int64_t bytes) {
  device_used_bytes_ -= device_bytes_of(bytes);
  check(device_used_bytes_ >= 0, "allocator: more memory is given back than was taken");
}

bool AllocatorModel::take_outside(int64_t bytes) {
  if (bytes < 0 || bytes > kUnlimitedBytes) {
    throw std::invalid_argument(std::to_string(bytes) +
                                " bytes outside the allocator: give 0 to 2^62");
  }
  const bool is_taken = take_memory(bytes);
  if (!is_taken) return false;
  outside_bytes_ += bytes;
  outside_used_bytes_ += device_bytes_of(bytes);
  return true;
}

void AllocatorModel::give_back_outside(int64_t bytes) {
  check(bytes >= 0 && bytes <= outside_bytes_,
        [&] { return std::to_string(bytes) + " bytes are not held outside the allocator"; });
  outside_bytes_ -= bytes;
  outside_used_bytes_ -= device_bytes_of(bytes);
  give_memory_back(bytes);
  check(outside_used_bytes_ >= outside_bytes_,
        "allocator: memory outside comes back in other pieces than it was taken in");
}

AllocatorBlock* AllocatorModel::new_segment(const Request& request) {
  // The limit counts the whole segment, even if only some of its pages would be mapped.
  const int64_t reserved = counters_.all.reserved_bytes.current;
  if (allowed_bytes_ && reserved + request.segment_bytes > *allowed_bytes_) return nullptr;
  return settings_.expandable_segments ? grow_segment(request) : allocate_segment(request);
}

/// Returns a block without size at the start of the next segment.
AllocatorBlock AllocatorModel::next_segment(StreamIndex stream, Pool pool) {
  const SegmentIndex segment = segments_++;
  const bool rises = settings_.segment_order == SegmentOrder::rising;
  const uint64_t next = rises ? highest_address_ + 1 : lowest_address_ - 1;
  const uint64_t address = addresses_ ? addresses_(segment) : next;
  check(address > 0 && address < UINT64_MAX, "allocator: a segment is outside of all addresses");
  lowest_address_ = std::min(lowest_address_, address);
  highest_address_ = std::max(highest_address_, address);
  return {.segment = segment, .segment_address = address, .stream = stream, .pool = pool};
}

AllocatorBlock* AllocatorModel::allocate_segment(const Request& request) {
  if (!take_memory(request.segment_bytes)) return nullptr;
  return add_segment(next_segment(request.stream, request.pool), request.segment_bytes);
}

/// Returns a new segment, whose memory was taken, as one block, which is in no list.
AllocatorBlock* AllocatorModel::add_segment(const Block& origin, int64_t bytes) {
  Block* block = new_block(origin, 0, bytes);
  count(block->pool, [&](PoolCounters& counters) {
    counters.segments.increase(1);
    counters.reserved_bytes.increase(bytes);
  });
  if (bytes >= settings_.max_split_bytes) counters_.oversize_segments.increase(1);
  ++counters_.driver_allocations;
  tell(AllocatorEventKind::segment_alloc, *block, 0, bytes);
  return block;
}

/// Gives a segment back; `block` is the whole segment, and free.
void AllocatorModel::release_segment(Block* block) {
  check(block->is_free() && block->is_mapped, "allocator: a segment in use is given back");
  check(!block->is_split(), "allocator: a part of a segment is given back");
  const int64_t bytes = block->bytes;
  ++counters_.driver_frees;
  tell(AllocatorEventKind::segment_free, *block, 0, bytes);
  give_memory_back(bytes);
  count(block->pool, [&](PoolCounters& counters) {
    counters.segments.decrease(1);
    counters.reserved_bytes.decrease(bytes);
  });
  if (bytes >= settings_.max_split_bytes) counters_.oversize_segments.decrease(1);
  erase_free(block);
  drop(block);
}

/// Gives back one cached block that is large enough, or several, the largest first. Returns true if
/// enough bytes came back. Does nothing unless max_split_bytes is set, nor with expandable
/// segments.
bool AllocatorModel::release_oversize(const Request& request) {
  if (settings_.max_split_bytes == kUnlimitedBytes || settings_.expandable_segments) return false;
  const int64_t wanted = std::max(request.bytes, settings_.max_split_bytes);
  const FreeBlocks::MappedBlocks& free = pool(request.pool).streams[request.stream].mapped_blocks();
  const auto enough = free.lower_bound({.bytes = wanted});
  if (enough != free.end()) {
    release_segment(enough->block);
    return true;
  }
  int64_t released = 0;
  while (released < wanted && !free.empty()) {
    const FreeKey largest = *free.rbegin();
    if (largest.bytes < settings_.max_split_bytes) break;
    released += largest.bytes;
    release_segment(largest.block);
  }
  return released >= wanted;
}

/// Gives back every segment that no caller's block keeps.
void AllocatorModel::release_cache() {
  ++counters_.synchronizations;
  complete_events();
  release_pool(Pool::large);
  release_pool(Pool::small);
}

void AllocatorModel::release_pool(Pool of) {
  std::vector<Block*> releasable;
  for (const StreamIndex stream : stream_order_) {
    if (keeps_cache_[stream]) continue;
    for (const FreeKey& key : pool(of).streams[stream].mapped_blocks()) {
      if (settings_.expandable_segments || !key.block->is_split()) releasable.push_back(key.block);
    }
  }
  for (Block* block : releasable) {
    if (settings_.expandable_segments) {
      unmap(block);
    } else {
      release_segment(block);
    }
  }
}

bool AllocatorModel::collects_garbage() const {
  return allowed_bytes_ && settings_.garbage_collection_threshold > 0;
}

/// Returns how often the block's pool was searched since the block became free.
int64_t AllocatorModel::age_of(const Block& block) const {
  const int64_t age = pool(block.pool).searches - block.searches_when_freed;
  check(age >= 0, "allocator: a block became free in the future");
  return age;
}

/// Gives back cached segments of the large pool, those of at least average age first, until the
/// reserved bytes are at the threshold.
void AllocatorModel::collect_garbage() {
  const auto threshold = static_cast<int64_t>(settings_.garbage_collection_threshold *
                                              static_cast<double>(*allowed_bytes_));
  const int64_t surplus = counters_.all.reserved_bytes.current - threshold;
  if (surplus <= 0) return;
  Garbage garbage;
  for (const StreamIndex stream : stream_order_) {
    if (keeps_cache_[stream]) continue;
    for (const FreeKey& key : pool(Pool::large).streams[stream].mapped_blocks()) {
      if (key.block->is_split()) continue;
      garbage.blocks.push_back(key.block);
      garbage.ages += age_of(*key.block);
    }
  }
  int64_t released = 0;
  while (released < surplus && !garbage.blocks.empty()) {
    const int64_t bytes = release_old(garbage);
    if (bytes == 0) return;
    released += bytes;
  }
}

int64_t AllocatorModel::release_old(Garbage& garbage) {
  const double average =
      static_cast<double>(garbage.ages) / static_cast<double>(garbage.blocks.size());
  int64_t released = 0;
  std::vector<Block*> kept;
  for (Block* block : garbage.blocks) {
    if (settings_.expandable_segments || static_cast<double>(age_of(*block)) < average) {
      kept.push_back(block);
      continue;
    }
    released += block->bytes;
    garbage.ages -= age_of(*block);
    release_segment(block);
  }
  garbage.blocks = std::move(kept);
  return released;
}

}  // namespace shardlens::planner
