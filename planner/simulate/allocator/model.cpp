#include "planner/simulate/allocator/model.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <stdexcept>
#include <string>

#include "base/check.h"

namespace shardlens::planner {

namespace {

using profiler::kBlockBytes;

constexpr int64_t kMostRequestBytes = int64_t{1} << 60;
constexpr size_t kPoolStreams = 32;

/// Rounds up to the next of `divisions` equal steps between two powers of two. `divisions` is a
/// power of two too.
int64_t rounded_to_division(int64_t bytes, uint64_t divisions) {
  const uint64_t size = static_cast<uint64_t>(bytes);
  if (std::has_single_bit(size)) return bytes;
  const uint64_t floor = std::bit_floor(size);
  const uint64_t step = floor / divisions;
  if (step == 0) return static_cast<int64_t>(floor * 2);
  return static_cast<int64_t>((size + step - 1) / step * step);
}

/// Returns the hash that c10::Stream has on the first device.
uint64_t hash_of(const StreamName& stream) {
  constexpr uint64_t kCudaDevice = uint64_t{1} << 56;
  constexpr uint64_t kIdBits = (uint64_t{1} << 48) - 1;
  return kCudaDevice | (static_cast<uint64_t>(stream.id) & kIdBits);
}

std::vector<StreamIndex> order_of(const std::vector<StreamName>& streams) {
  std::vector<StreamIndex> order(streams.size());
  std::iota(order.begin(), order.end(), StreamIndex{0});
  const auto handle = [&](StreamIndex stream) { return streams[stream].handle; };
  std::ranges::sort(order, {}, handle);
  if (order.empty() || std::ranges::adjacent_find(order, {}, handle) != order.end()) {
    throw std::invalid_argument("streams of an allocator: none, or two with one handle; name each");
  }
  return order;
}

}  // namespace

std::vector<StreamName> default_and_pool_streams(size_t count) {
  if (count < 1 || count > 1 + kPoolStreams) {
    throw std::invalid_argument(std::to_string(count) + " streams: LibTorch has 33; give 1 to 33");
  }
  std::vector<StreamName> streams(1);
  for (size_t i = 1; i < count; ++i) {
    // The low bits name the pool, the bits above them the place in it.
    streams.push_back({.handle = i, .id = static_cast<int64_t>((i - 1) * kPoolStreams + 3)});
  }
  return streams;
}

AllocatorModel::AllocatorModel(const AllocatorSettings& settings,
                               const std::vector<StreamName>& streams)
    : settings_(settings),
      stream_order_(order_of(streams)),
      keeps_cache_(streams.size()),
      pools_{BlockPool{.streams = std::vector<FreeBlocks>(streams.size())},
             BlockPool{.streams = std::vector<FreeBlocks>(streams.size())}},
      pending_(streams.size()) {
  if (settings.capacity_bytes < 0 || settings.capacity_bytes > kUnlimitedBytes) {
    throw std::invalid_argument(std::to_string(settings.capacity_bytes) +
                                " bytes: not a capacity of a device; give 0 to 2^62");
  }
  for (const StreamName& stream : streams) stream_hashes_.push_back(hash_of(stream));
  set_memory_fraction(settings.memory_fraction);
}

void AllocatorModel::set_memory_fraction(double fraction) {
  if (!(fraction >= 0 && fraction <= 1)) {
    throw std::invalid_argument("memory fraction " + std::to_string(fraction) +
                                ": not a part of the device's memory; give 0 to 1");
  }
  allowed_bytes_.reset();
  if (fraction < 1) {
    const double allowed = fraction * static_cast<double>(settings_.capacity_bytes);
    allowed_bytes_ =
        settings_.rounds_memory_fraction ? std::llround(allowed) : static_cast<int64_t>(allowed);
  }
}

void AllocatorModel::give_addresses(SegmentAddresses addresses) {
  check(segments_ == 0, "segments have addresses before it is said how they are given");
  addresses_ = std::move(addresses);
  are_addresses_given_ = addresses_ != nullptr;
}

void AllocatorModel::reset_peaks() { counters_.for_each(&AllocatorStat::reset_peak); }

void AllocatorModel::reset_accumulated() {
  counters_.for_each(&AllocatorStat::reset_accumulated);
  counters_.alloc_retries = 0;
  counters_.out_of_memory = 0;
  counters_.synchronizations = 0;
  counters_.driver_allocations = 0;
  counters_.driver_frees = 0;
}

int64_t AllocatorModel::rounded(int64_t bytes) const {
  if (bytes < kBlockBytes) return kBlockBytes;
  constexpr int kFirstIntervalBits = 21;  // below 2 MiB
  const int bits = std::bit_width(static_cast<uint64_t>(bytes));
  const auto interval = static_cast<size_t>(std::max(0, bits - kFirstIntervalBits));
  const auto& divisions = settings_.roundup_divisions;
  const uint64_t steps = divisions[std::min(interval, divisions.size() - 1)];
  if (steps > 1 && static_cast<uint64_t>(bytes) > kBlockBytes * steps) {
    return rounded_to_division(bytes, steps);
  }
  return round_up(bytes, kBlockBytes);
}

AllocatorModel::Request AllocatorModel::request_of(int64_t bytes, StreamIndex stream) const {
  Request request{.requested_bytes = bytes, .bytes = rounded(bytes), .stream = stream};
  request.pool = profiler::pool_of(request.bytes);
  const bool is_packed = request.pool == Pool::large && request.bytes < profiler::kOwnSegmentBytes;
  request.segment_bytes =
      is_packed ? settings_.large_segment_bytes : profiler::segment_bytes(request.bytes);
  check(request.bytes >= bytes && request.segment_bytes >= request.bytes,
        "allocator: a request is rounded down");
  return request;
}

AllocationResult AllocatorModel::allocate(int64_t bytes, StreamIndex stream) {
  if (bytes < 1 || bytes > kMostRequestBytes) {
    throw std::invalid_argument(std::to_string(bytes) +
                                " bytes: not a size of an allocation; give 1 to 2^60");
  }
  check(stream < pending_.size(), "a stream that the model does not know");
  complete_events();
  const Request request = request_of(bytes, stream);
  if (Block* block = find_free(request)) return give(request, block, AllocationSource::cache);
  const ObtainedBlock obtained = obtain(request);
  if (obtained.block != nullptr) return give(request, obtained.block, obtained.source);
  return out_of_memory(request, obtained.failure);
}

AllocatorBlock* AllocatorModel::find_free(const Request& request) {
  if (collects_garbage()) ++pool(request.pool).searches;
  const FreeBlocks::MappedBlocks& free = pool(request.pool).streams[request.stream].mapped_blocks();
  auto found = free.lower_bound({.bytes = request.bytes});
  if (found == free.end()) return nullptr;
  if (settings_.expandable_segments) {
    // A block at the end of the mapped pages counts as large as it can grow.
    const auto room = [](const FreeKey& key) {
      const Block* next = key.block->next;
      return key.bytes + (next != nullptr && !next->is_mapped ? next->bytes : 0);
    };
    for (auto next = std::next(found); next != free.end() && room(*next) < room(*found); ++next) {
      found = next;
    }
  }
  Block* block = found->block;
  if (is_oversize_for(*block, request)) return nullptr;
  erase_free(block);
  return block;
}

bool AllocatorModel::is_oversize_for(const Block& block, const Request& request) const {
  if (request.bytes < settings_.max_split_bytes) return block.bytes >= settings_.max_split_bytes;
  return block.bytes >= request.bytes + settings_.max_non_split_rounding_bytes;
}

/// Obtains a new segment in LibTorch's steps: collects garbage first, if that is enabled. If the
/// device is full, releases oversize blocks and tries again, then releases the whole cache and
/// tries again.
AllocatorModel::ObtainedBlock AllocatorModel::obtain(const Request& request) {
  const auto released_by = [this](const auto& release) {
    const int64_t before = counters_.all.reserved_bytes.current;
    release();
    return before - counters_.all.reserved_bytes.current;
  };
  ObtainedBlock obtained;
  AllocationFailure& failure = obtained.failure;
  if (collects_garbage()) failure.collected = released_by([&] { collect_garbage(); });
  obtained.block = new_segment(request);
  if (obtained.block != nullptr) return obtained;

  obtained.source = AllocationSource::after_oversize;
  bool is_enough = false;
  failure.released_oversize = released_by([&] { is_enough = release_oversize(request); });
  if (is_enough) obtained.block = new_segment(request);
  if (obtained.block != nullptr) return obtained;

  obtained.source = AllocationSource::after_retry;
  failure.released_cache = released_by([&] { release_cache(); });
  ++counters_.alloc_retries;
  obtained.block = new_segment(request);
  return obtained;
}

AllocationFailure AllocatorModel::out_of_memory(const Request& request, AllocationFailure failure) {
  ++counters_.out_of_memory;
  check_totals();
  failure.requested = request.requested_bytes;
  failure.rounded = request.bytes;
  failure.asked_of_driver = request.segment_bytes;
  failure.device_free = device_free_bytes();
  failure.allocated = counters_.all.allocated_bytes.current;
  failure.reserved = counters_.all.reserved_bytes.current;
  failure.allowed = allowed_bytes_;
  return failure;
}

bool AllocatorModel::should_cut(const Block& block, const Request& request) const {
  if (request.bytes >= settings_.max_split_bytes && request.pool == Pool::large &&
      !settings_.expandable_segments) {
    return false;
  }
  return profiler::is_split(block.bytes, request.bytes, settings_.expandable_segments);
}

/// Cuts a block in two; the request gets the low end.
AllocatorBlock* AllocatorModel::cut(const Request& request, Block* block) {
  Block* given = split_low_end(block, request.bytes);
  insert_free(block);
  return given;
}

/// Makes a block of the low end of `block`, which keeps the rest.
AllocatorBlock* AllocatorModel::split_low_end(Block* block, int64_t bytes) {
  check(block->bytes > bytes, "allocator: a cut leaves nothing over");
  Block* low = new_block(*block, block->offset_bytes, bytes);
  link(low, block->previous, block);
  block->offset_bytes += bytes;
  block->bytes -= bytes;
  return low;
}

Allocation AllocatorModel::give(const Request& request, Block* block, AllocationSource source) {
  check(block->is_free() && block->is_mapped && !block->is_listed,
        "allocator: a block is given that others may use");
  check(block->pool == request.pool && block->stream == request.stream,
        "allocator: a block of another pool or stream is given");
  check(block->bytes >= request.bytes, "allocator: a block is given that is too small");
  const bool was_split = block->is_split();
  const bool is_cut = should_cut(*block, request);
  Block* remainder = is_cut ? block : nullptr;
  if (is_cut) block = cut(request, block);
  if (!settings_.expandable_segments) count_cut(*block, remainder, was_split);
  block->is_allocated = true;
  block->requested_bytes = request.requested_bytes;
  tell(AllocatorEventKind::alloc, *block, block->offset_bytes, request.requested_bytes, is_cut);
  count_given(*block);
  return {.block = block->id,
          .segment = block->segment,
          .offset_bytes = block->offset_bytes,
          .block_bytes = block->bytes,
          .source = source};
}

void AllocatorModel::count_cut(const Block& given, const Block* remainder, bool was_split) {
  if (!was_split && remainder == nullptr) return;
  count(given.pool, [&](PoolCounters& counters) {
    if (!was_split) {
      counters.inactive_split.increase(1);
      counters.inactive_split_bytes.increase(remainder->bytes);
      return;
    }
    counters.inactive_split_bytes.decrease(given.bytes);
    if (remainder == nullptr) counters.inactive_split.decrease(1);
  });
}

void AllocatorModel::count_given(const Block& block) {
  count(block.pool, [&](PoolCounters& counters) {
    counters.allocations.increase(1);
    counters.allocated_bytes.increase(block.bytes);
    counters.active.increase(1);
    counters.active_bytes.increase(block.bytes);
    counters.requested_bytes.increase(block.requested_bytes);
  });
  if (block.bytes >= settings_.max_split_bytes) counters_.oversize_allocations.increase(1);
}

AllocatorBlock& AllocatorModel::held_block(BlockId id) {
  check(id < blocks_.size() && blocks_[id].is_allocated,
        [&] { return "block " + std::to_string(id) + " is not allocated"; });
  return blocks_[id];
}

void AllocatorModel::free(BlockId id) {
  Block& block = held_block(id);
  block.is_allocated = false;
  count(block.pool, [&](PoolCounters& counters) {
    counters.allocations.decrease(1);
    counters.allocated_bytes.decrease(block.bytes);
  });
  tell(AllocatorEventKind::free_requested, block, block.offset_bytes, block.requested_bytes);
  if (block.bytes >= settings_.max_split_bytes) counters_.oversize_allocations.decrease(1);
  if (uses_.contains(id)) {
    insert_events(&block);
  } else {
    free_now(&block);
  }
}

void AllocatorModel::free_now(Block* block) {
  check(block->is_free() && !block->is_listed, "allocator: a block becomes free twice");
  tell(AllocatorEventKind::free_completed, *block, block->offset_bytes, block->requested_bytes);
  const int64_t bytes = block->bytes;
  int64_t merged_blocks = 0;
  int64_t merged_bytes = 0;
  for (Block* neighbour : {block->previous, block->next}) {
    const int64_t merged = merge(block, neighbour);
    merged_bytes += merged;
    merged_blocks += merged > 0 ? 1 : 0;
  }
  insert_free(block);
  if (!settings_.expandable_segments) count_merged(*block, merged_blocks, merged_bytes);
  count(block->pool, [&](PoolCounters& counters) {
    counters.active.decrease(1);
    counters.active_bytes.decrease(bytes);
    counters.requested_bytes.decrease(block->requested_bytes);
  });
}

/// Counts the net change, as LibTorch does, so that a peak is never that of a half-done merge.
void AllocatorModel::count_merged(const Block& block, int64_t merged_blocks, int64_t merged_bytes) {
  const int64_t blocks = (block.is_split() ? 1 : 0) - merged_blocks;
  const int64_t bytes = (block.is_split() ? block.bytes : 0) - merged_bytes;
  const auto change = [](AllocatorStat& counter, int64_t amount) {
    if (amount > 0) counter.increase(amount);
    if (amount < 0) counter.decrease(-amount);
  };
  count(block.pool, [&](PoolCounters& counters) {
    change(counters.inactive_split, blocks);
    change(counters.inactive_split_bytes, bytes);
  });
}

void AllocatorModel::record_stream(BlockId id, StreamIndex stream) {
  const Block& block = held_block(id);
  check(stream < pending_.size(), "a stream that the model does not know");
  if (stream != block.stream) uses_[id].insert(stream, stream_hashes_[stream]);
}

void AllocatorModel::insert_events(Block* block) {
  const auto uses = uses_.extract(block->id);
  check(!uses.empty(), "allocator: a block waits for no stream");
  check(block->pending_events == 0, "allocator: a block waits twice");
  const HashedStreams& streams = uses.mapped();
  for (size_t place = streams.first(); place != streams.end(); place = streams.next(place)) {
    const StreamIndex stream = streams.at(place);
    ++block->pending_events;
    pending_[stream].push_back(block);
    pending_streams_.insert(stream, stream_hashes_[stream]);
  }
}

/// Frees the blocks that waited for other streams: see [Note: what the device has done].
void AllocatorModel::complete_events() {
  if (pending_streams_.empty()) return;
  for (size_t place = pending_streams_.first(); place != pending_streams_.end();) {
    std::vector<Block*>& blocks = pending_[pending_streams_.at(place)];
    for (Block* block : blocks) {
      check(!block->is_allocated && block->pending_events > 0,
            "allocator: an event of a block that waits for none");
      if (--block->pending_events == 0) free_now(block);
    }
    blocks.clear();
    place = pending_streams_.erase(place);
  }
}

void AllocatorModel::keep_cache(StreamIndex stream, bool is_kept) {
  check(stream < keeps_cache_.size(), "a stream that the model does not know");
  keeps_cache_[stream] = is_kept;
}

void AllocatorModel::empty_cache() {
  release_cache();
  check_totals();
}

}  // namespace shardlens::planner
