// Allocates pinned host memory, which a device can copy from and to while the host continues.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

#include "planner/schedule/pinned_blocks.h"
#include "profiler/recording/profile.h"

namespace shardlens::runtime {

class PinnedMemory {
 public:
  /// Takes memory for tensors of `total_bytes` in all, each rounded up. Throws c10::Error if the
  /// host has too little memory.
  PinnedMemory(profiler::Category category, std::string label, int64_t total_bytes);

  /// Returns a tensor of zeros, 1D.
  at::Tensor take(int64_t numel, at::ScalarType dtype);

 private:
  profiler::Category category_;
  std::string label_;
  planner::PinnedBlocks blocks_;
  at::Tensor block_;  // bytes; tensors taken from it keep it alive
};

}  // namespace shardlens::runtime
