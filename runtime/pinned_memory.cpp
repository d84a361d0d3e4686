#include "runtime/pinned_memory.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "profiler/recorder.h"

namespace shardlens::runtime {

namespace {

at::Tensor new_block(int64_t bytes) {
  return at::zeros({bytes}, at::dtype(at::kByte).pinned_memory(true));
}

/// A power of two that holds the next piece, and as much of the rest as it fills.
int64_t block_bytes(int64_t next, int64_t left) {
  const auto holds_next = std::bit_ceil(static_cast<uint64_t>(next));
  const auto fits_rest = std::bit_floor(static_cast<uint64_t>(std::max(left, next)));
  return static_cast<int64_t>(std::max(holds_next, fits_rest));
}

}  // namespace

int64_t PinnedMemory::rounded(int64_t bytes) {
  return (bytes + kAlignmentBytes - 1) / kAlignmentBytes * kAlignmentBytes;
}

PinnedMemory::PinnedMemory(profiler::Category category, std::string label, int64_t total_bytes)
    : category_(category), label_(std::move(label)), left_bytes_(total_bytes) {}

at::Tensor PinnedMemory::take(int64_t numel, at::ScalarType dtype) {
  const int64_t bytes = numel * static_cast<int64_t>(c10::elementSize(dtype));
  if (!block_.defined() || filled_bytes_ + bytes > block_.numel()) {
    const profiler::Scope scope(category_, label_);
    block_ = new_block(block_bytes(bytes, left_bytes_));
    filled_bytes_ = 0;
  }
  const at::Tensor piece = block_.narrow(0, filled_bytes_, bytes).view(dtype);
  filled_bytes_ += rounded(bytes);
  left_bytes_ -= rounded(bytes);
  return piece;
}

}  // namespace shardlens::runtime
