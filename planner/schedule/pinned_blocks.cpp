#include "planner/schedule/pinned_blocks.h"

#include <algorithm>
#include <bit>

#include "base/check.h"

namespace shardlens::planner {

PinnedBlocks::Piece PinnedBlocks::take(int64_t bytes) {
  check(bytes >= 0, "pinned memory of a negative size");
  Piece piece;
  if (filled_bytes_ + bytes > block_bytes_) {
    // The new block is a power of two that holds the piece, and is as large as the rest can fill.
    const auto holds_piece = std::bit_ceil(static_cast<uint64_t>(bytes));
    const auto fits_rest = std::bit_floor(static_cast<uint64_t>(std::max(left_bytes_, bytes)));
    block_bytes_ = static_cast<int64_t>(std::max(holds_piece, fits_rest));
    filled_bytes_ = 0;
    piece.new_block_bytes = block_bytes_;
  }
  piece.offset_bytes = filled_bytes_;
  filled_bytes_ += rounded(bytes);
  left_bytes_ -= rounded(bytes);
  check(piece.offset_bytes + bytes <= block_bytes_, "a pinned piece reaches past its block");
  check(left_bytes_ >= 0, "more pinned memory is taken than was counted");
  return piece;
}

bool pins_master(const Schedule& schedule, const Bucket& bucket) {
  return !has_host_cast(bucket) || schedule.offload == Offload::params;
}

bool is_pinned(const Slot& slot) {
  return slot.on_host && (slot.kind == SlotKind::gradient_shard || slot.kind == SlotKind::norm);
}

PinnedTotals pinned_totals(const Schedule& schedule) {
  PinnedTotals totals;
  const auto add = [&](int64_t& total, const Bucket& bucket, DType dtype) {
    total += PinnedBlocks::rounded(schedule.shard_numel(bucket) * bytes_of(dtype));
  };
  for (const Group& group : schedule.groups) {
    for (const Bucket& bucket : group.buckets) {
      if (pins_master(schedule, bucket)) add(totals.masters_bytes, bucket, kMasterDType);
      if (has_host_cast(bucket)) add(totals.parameters_bytes, bucket, bucket.dtype);
    }
  }
  for (const Slot& slot : schedule.slots) {
    if (is_pinned(slot)) totals.gradients_bytes += PinnedBlocks::rounded(slot.bytes);
  }
  return totals;
}

}  // namespace shardlens::planner
