#include "runtime/execute/pinned_memory.h"

#include <ATen/ATen.h>

#include <utility>

#include "base/check.h"
#include "profiler/recorder/recorder.h"

namespace shardlens::runtime {

PinnedMemory::PinnedMemory(profiler::Category category, std::string label, int64_t total_bytes)
    : category_(category), label_(std::move(label)), blocks_(total_bytes) {}

at::Tensor PinnedMemory::take(int64_t numel, at::ScalarType dtype) {
  const int64_t bytes = numel * static_cast<int64_t>(c10::elementSize(dtype));
  const planner::PinnedBlocks::Piece piece = blocks_.take(bytes);
  if (piece.new_block_bytes > 0) {
    const profiler::Scope scope(category_, label_);
    block_ = at::zeros({piece.new_block_bytes}, at::dtype(at::kByte).pinned_memory(true));
  }
  check(block_.defined() && piece.offset_bytes + bytes <= block_.numel(),
        "pinned memory: a piece reaches past its block");
  return block_.narrow(0, piece.offset_bytes, bytes).view(dtype);
}

}  // namespace shardlens::runtime
