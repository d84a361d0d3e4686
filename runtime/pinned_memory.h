// Pinned memory of the host: what a device copies from and to while the host goes on.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

#include "planner/pinned_blocks.h"
#include "profiler/profile.h"

namespace shardlens::runtime {

class PinnedMemory {
 public:
  /// For tensors of `total_bytes` in all, each rounded up. Throws c10::Error where the host has no
  /// more.
  PinnedMemory(profiler::Category category, std::string label, int64_t total_bytes);

  /// 1D and zero.
  at::Tensor take(int64_t numel, at::ScalarType dtype);

 private:
  profiler::Category category_;
  std::string label_;
  planner::PinnedBlocks blocks_;
  at::Tensor block_;  // bytes; what is taken from it keeps it
};

}  // namespace shardlens::runtime
