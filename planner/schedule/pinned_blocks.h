// Cuts a rank's pinned tensors out of blocks. LibTorch's pinned allocator rounds every block up to
// a power of two, so tensors are cut from blocks that are powers of two already, of falling size:
// that takes little more than the sum. Both the runtime and the planner follow this
// rule.
#pragma once

#include <cstdint>

#include "planner/schedule/schedule.h"

namespace shardlens::planner {

class PinnedBlocks {
 public:
  static constexpr int64_t kAlignmentBytes = 64;
  static int64_t rounded(int64_t bytes) {
    return (bytes + kAlignmentBytes - 1) / kAlignmentBytes * kAlignmentBytes;
  }

  struct Piece {
    int64_t offset_bytes = 0;     // in its block
    int64_t new_block_bytes = 0;  // of the block that begins with it; 0: it lies in the last one
  };

  /// Plans blocks for pieces of `total_bytes` in all, each piece rounded up.
  explicit PinnedBlocks(int64_t total_bytes) : left_bytes_(total_bytes) {}

  Piece take(int64_t bytes);

 private:
  int64_t left_bytes_;  // of the total
  int64_t block_bytes_ = 0;
  int64_t filled_bytes_ = 0;
};

/// The pinned bytes of an offload on a rank that has a device: each is a sum of rounded pieces.
struct PinnedTotals {
  int64_t masters_bytes = 0;
  int64_t parameters_bytes = 0;  // the masters' casts
  int64_t gradients_bytes = 0;   // and the norm
};
PinnedTotals pinned_totals(const Schedule& schedule);

/// True if the device copies this bucket's masters. The answer means something only where the
/// masters are offloaded.
bool pins_master(const Schedule& schedule, const Bucket& bucket);
/// True if the host keeps the bucket's parameters in another dtype beside the fp32 masters.
inline bool has_host_cast(const Bucket& bucket) { return bucket.dtype != kMasterDType; }
/// True for a host slot with a gradient from the device, or with the norm that goes there.
bool is_pinned(const Slot& slot);

}  // namespace shardlens::planner
