// PyTorch's caching allocator of CUDA memory (backend "native") as a model: the same requests give
// the same blocks, segments, counters and failures, without LibTorch and without memory. The
// planner sends a step's requests through it to know what is reserved and what fits.
//
// The model is exact in rounding, pools, best fit, splits and merges, streams, expandable segments,
// the order in which cached memory is given back when the device is full, garbage collection and
// the limit of a memory fraction. tests/profiler/null_device/allocator_model_test.cpp compares it
// with the wheel's own allocator, operation by operation.
//
// [Note: what the order of addresses is]
// Among equally large free blocks PyTorch up to 2.11 takes the one with the lowest address; for
// later versions ages come first (FreeBlockOrder), so that addresses decide nothing. A new segment
// lies below all earlier ones here, as on the null device, unless settings or give_addresses() say
// otherwise: Linux hands out addresses downwards, and a driver mostly does so, too, but it reuses
// those that were freed. With the addresses that GPUs' drivers gave, the model places all blocks of
// recorded histories as these GPUs did: tests/evidence.
//
// [Note: what the device has done]
// A block that other streams used is kept, when freed, until those streams have passed their last
// use. Here, as on the null device, they have passed that use by the next request, which is when
// the block is freed.
//
// [Note: private pools]
// A private pool (CUDA graphs, torch.cuda.MemPool) serves some requests from segments of its own.
// Here it is a stream of its own, since no block is shared between streams, whose cached memory is
// kept (keep_cache) until nothing uses the pool any more.
//
// Callbacks that free memory, a change of settings during a run and what torch.compile restores of
// its graphs' pools are not modelled. Only one thread at a time may use a model.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "planner/simulate/allocator/addresses.h"
#include "planner/simulate/allocator/counters.h"
#include "planner/simulate/allocator/free_blocks.h"
#include "planner/simulate/allocator/hashed_streams.h"
#include "planner/simulate/allocator/layout.h"
#include "planner/simulate/allocator/results.h"
#include "planner/simulate/allocator/settings.h"
#include "planner/simulate/allocator/totals.h"
#include "profiler/recording/blocks.h"

namespace shardlens::planner {

/// The names that LibTorch has for a stream. They decide the order in which the blocks of several
/// streams are gone through.
struct StreamName {
  uint64_t handle = 0;  // cudaStream_t
  int64_t id = 0;       // c10::StreamId
};

/// Returns the names of `count` streams, at most 33: the default stream, then those that
/// c10::cuda::getStreamFromPool() returns in a process that never asked for one of high priority.
std::vector<StreamName> default_and_pool_streams(size_t count);

class AllocatorModel {
 public:
  using Listener = std::function<void(const AllocatorEvent&)>;

  /// Each stream is named by its index in `streams` from here on. Throws std::invalid_argument if
  /// there are none or two have the same handle, and for settings out of range.
  explicit AllocatorModel(const AllocatorSettings& settings = {},
                          const std::vector<StreamName>& streams = {{}});
  AllocatorModel(const AllocatorModel&) = delete;
  AllocatorModel& operator=(const AllocatorModel&) = delete;

  /// Lets a function say where each new segment lies, before the first one is made.
  void give_addresses(SegmentAddresses addresses);
  /// Starts from what an allocator held, before the first request. Returns the blocks that are
  /// held, in the order of the list; a caller frees them as its own. Segments are numbered in the
  /// order of the list, too. Where ages count, this is also the order in which they were made.
  /// Throws std::invalid_argument, in one line, for a layout that no allocator with these settings
  /// can have, and for expandable segments.
  std::vector<BlockId> lay_out(const std::vector<SegmentLayout>& segments);

  /// Allocates `bytes` for use on `stream`. Throws std::invalid_argument outside 1 byte to 1 EiB;
  /// LibTorch makes no request for an empty tensor.
  AllocationResult allocate(int64_t bytes, StreamIndex stream);
  /// Frees a block. Throws std::logic_error if the block is not allocated.
  void free(BlockId block);
  /// Says that the block may be in use on another stream when it is freed. Throws as free does.
  void record_stream(BlockId block, StreamIndex stream);

  /// Empties the cache, as torch.cuda.empty_cache() does.
  void empty_cache();
  /// Says whether a stream's cached memory stays when the cache is emptied: [Note: private pools].
  void keep_cache(StreamIndex stream, bool is_kept);
  /// Sets the limit, as torch.cuda.set_per_process_memory_fraction() does. Throws
  /// std::invalid_argument outside 0 to 1.
  void set_memory_fraction(double fraction);
  void reset_peaks();
  void reset_accumulated();

  /// Takes device memory that the allocator does not hold (the context, NCCL's buffers), in whole
  /// pages of 2 MiB. Returns false and takes nothing if the device has too little left: the
  /// allocator gives back no cache for such requests.
  bool take_outside(int64_t bytes);
  void give_back_outside(int64_t bytes);

  /// Returns everything that later answers depend on, except the segments' numbers and addresses,
  /// of which only the order counts. Two models with equal states answer the same requests alike
  /// from then on, unless give_addresses() was called.
  /// `purpose_of` says what a held block is for.
  std::vector<int64_t> state(const std::function<int64_t(BlockId)>& purpose_of) const;

  int64_t device_free_bytes() const { return settings_.capacity_bytes - device_used_bytes_; }
  const AllocatorCounters& counters() const { return counters_; }
  /// Adds up what the blocks hold, by going through all of them. Throws std::logic_error if they
  /// are not laid out as blocks must be.
  AllocatorTotals totals() const;
  /// Throws std::logic_error unless the counters equal totals(). For the end of a round.
  void check_totals() const;
  /// Sets a function that is called with each event, within allocate, free and empty_cache. The
  /// counters have changed before the call wherever LibTorch changes them first. The function may
  /// not call the model.
  void set_listener(Listener listener) { listener_ = std::move(listener); }

 private:
  using Block = AllocatorBlock;
  using Pool = profiler::Pool;

  struct Request {
    int64_t requested_bytes = 0;
    int64_t bytes = 0;          // rounded
    int64_t segment_bytes = 0;  // to ask the driver for
    StreamIndex stream = 0;
    Pool pool = Pool::small;
  };
  struct ObtainedBlock {
    Block* block = nullptr;
    AllocationSource source = AllocationSource::driver;
    AllocationFailure failure;  // what was tried so far
  };
  struct BlockPool {
    std::vector<FreeBlocks> streams;  // by StreamIndex
    int64_t searches = 0;             // counted where garbage is collected
  };
  struct Garbage {
    std::vector<Block*> blocks;  // in the order of their pool
    int64_t ages = 0;            // their sum
  };

  // model.cpp handles requests and frees.
  int64_t rounded(int64_t bytes) const;
  Request request_of(int64_t bytes, StreamIndex stream) const;
  Block* find_free(const Request& request);
  bool is_oversize_for(const Block& block, const Request& request) const;
  ObtainedBlock obtain(const Request& request);
  AllocationFailure out_of_memory(const Request& request, AllocationFailure failure);
  Allocation give(const Request& request, Block* block, AllocationSource source);
  Block* cut(const Request& request, Block* block);
  Block* split_low_end(Block* block, int64_t bytes);
  bool should_cut(const Block& block, const Request& request) const;
  void count_cut(const Block& given, const Block* remainder, bool was_split);
  void count_given(const Block& block);
  void free_now(Block* block);
  void count_merged(const Block& block, int64_t merged_blocks, int64_t merged_bytes);
  void insert_events(Block* block);
  void complete_events();
  Block& held_block(BlockId id);

  // segments.cpp takes memory from the device and gives it back.
  Block* new_segment(const Request& request);
  Block* allocate_segment(const Request& request);
  Block next_segment(StreamIndex stream, Pool pool);
  Block* add_segment(const Block& origin, int64_t bytes);
  void release_segment(Block* block);
  bool release_oversize(const Request& request);
  void release_cache();
  void release_pool(Pool of);
  bool collects_garbage() const;
  void collect_garbage();
  int64_t release_old(Garbage& garbage);
  int64_t age_of(const Block& block) const;
  static int64_t device_bytes_of(int64_t bytes);
  bool take_memory(int64_t bytes);
  void give_memory_back(int64_t bytes);

  // expandable.cpp grows segments page by page.
  Block* grow_segment(const Request& request);
  Block* find_room(const Request& request);
  Block* new_range(const Request& request);
  bool map(Block* block, int64_t bytes);
  void unmap(Block* block);
  int64_t page_bytes(Pool of) const;
  int64_t address_range_bytes(Pool of) const;

  // layout.cpp lays out what was there before the first request.
  void lay_out_blocks(Block* rest, const SegmentLayout& segment, std::vector<BlockId>& held);

  // blocks.cpp keeps the blocks and their places.
  int64_t age_of_new(const Block& like);
  Block* new_block(const Block& like, int64_t offset_bytes, int64_t bytes);
  void drop(Block* block);
  std::vector<const Block*> present_blocks() const;  // all but the dropped ones
  void link(Block* block, Block* before, Block* after);
  void insert_free(Block* block);
  void erase_free(Block* block);
  int64_t merge(Block* into, Block* from);
  FreeBlocks& free_blocks(const Block& block) { return pool(block.pool).streams[block.stream]; }
  BlockPool& pool(Pool of) { return pools_[static_cast<size_t>(of)]; }
  const BlockPool& pool(Pool of) const { return pools_[static_cast<size_t>(of)]; }
  void check_addresses() const;
  void tell(AllocatorEventKind kind, const Block& block, int64_t offset_bytes, int64_t bytes,
            bool is_split = false);

  template <class Change>
  void count(Pool of, const Change& change) {
    change(counters_.all);
    change(of == Pool::small ? counters_.small : counters_.large);
  }

  AllocatorSettings settings_;
  int64_t device_used_bytes_ = 0;
  int64_t outside_bytes_ = 0;       // as they were asked for
  int64_t outside_used_bytes_ = 0;  // in whole pages, of device_used_bytes_
  std::optional<int64_t> allowed_bytes_;

  std::vector<uint64_t> stream_hashes_;    // by StreamIndex
  std::vector<StreamIndex> stream_order_;  // by handle
  std::vector<bool> keeps_cache_;          // by StreamIndex
  std::array<BlockPool, 2> pools_;         // by Pool
  std::deque<Block> blocks_;               // by BlockId
  std::vector<Block*> dropped_;            // of blocks_, to be used again
  int64_t made_blocks_ = 0;
  SegmentIndex segments_ = 0;             // made so far
  SegmentAddresses addresses_;            // empty: falling ones
  uint64_t lowest_address_ = UINT64_MAX;  // of all segments so far
  uint64_t highest_address_ = 0;
  bool are_addresses_given_ = false;

  std::unordered_map<BlockId, HashedStreams> uses_;  // on other streams, of allocated blocks
  HashedStreams pending_streams_;                    // which have events
  std::vector<std::vector<Block*>> pending_;         // by StreamIndex, in the order of the events

  AllocatorCounters counters_;
  Listener listener_;
};

}  // namespace shardlens::planner
