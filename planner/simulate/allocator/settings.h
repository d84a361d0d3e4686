// The settings of PyTorch's caching allocator of CUDA memory, as PYTORCH_CUDA_ALLOC_CONF gives
// them, and the device that it allocates from. The planner reads them; AllocatorModel obeys them.
//
// The text is read as LibTorch 2.11 to 2.15 read it, also where that is lenient: a number ends
// where its digits do ("100MB" is 100), "-1" is a very large number, and the characters in place of
// a colon or a comma are not checked. So a text that PyTorch takes means here what it means there,
// and one that PyTorch refuses is refused. Sizes of more than 4 EiB count as 4 EiB.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "models/torch_rules.h"

namespace shardlens::planner {

/// The value that stands for "no limit" as max_split_bytes and as a capacity: more than any device
/// has.
inline constexpr int64_t kUnlimitedBytes = int64_t{1} << 62;

/// Says where a new segment lies: below all earlier ones, as drivers mostly put it, or above them.
enum class SegmentOrder : uint8_t { falling, rising };

struct AllocatorSettings {
  /// The number of ranges of request sizes: below 2 MiB, below 4 MiB, ... and from 32 GiB on.
  static constexpr size_t kRoundupIntervals = 16;

  // The device that memory is taken from.
  int64_t capacity_bytes = kUnlimitedBytes;  // what cudaMemGetInfo gives as total
  double memory_fraction = 1;                // of the capacity; per_process_memory_fraction
  SegmentOrder segment_order = SegmentOrder::falling;
  bool rounds_memory_fraction = models::own_torch_rules().rounds_memory_fraction;
  models::FreeBlockOrder free_block_order = models::own_torch_rules().free_block_order;

  // These decide what is taken from the driver.
  int64_t large_segment_bytes = int64_t{20} << 20;  // for requests of 1 to 10 MiB
  bool expandable_segments = false;
  double garbage_collection_threshold = 0;  // of what memory_fraction allows; 0: no collection

  // These decide how requests are rounded and blocks are cut.
  std::array<uint64_t, kRoundupIntervals> roundup_divisions{};  // of a power of two; 0 and 1: none
  int64_t max_split_bytes = kUnlimitedBytes;
  int64_t max_non_split_rounding_bytes = int64_t{20} << 20;

  /// True if a request may fail although the device has room for all reserved memory.
  bool limits_itself() const { return memory_fraction < 1 || garbage_collection_threshold > 0; }

  bool operator==(const AllocatorSettings&) const = default;
};

/// Reads the value of PYTORCH_CUDA_ALLOC_CONF, "key:value,key:[a:b,c:d]"; capacity_bytes stays
/// unlimited. Keys that change nothing about device memory (pinned_*, release_lock_on_cudamalloc,
/// ...) are checked only. Throws std::invalid_argument, in one line, for what PyTorch refuses and
/// for backend:cudaMallocAsync.
AllocatorSettings parse_allocator_settings(std::string_view text);

/// Returns the same settings with the rules of `torch`, which may be another PyTorch than the
/// build's.
AllocatorSettings with_rules(AllocatorSettings settings, const models::TorchRules& torch);

}  // namespace shardlens::planner
