// Pinned memory of the host: what a device copies from and to while the host goes on.
//
// LibTorch's pinned allocator rounds every block up to a power of two. So tensors are cut from
// blocks that are powers of two already, of falling size: little more than the sum is taken.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

#include "profiler/profile.h"

namespace shardlens::runtime {

class PinnedMemory {
 public:
  /// For tensors of `total_bytes` in all, each rounded up to kAlignmentBytes. Throws c10::Error
  /// where the host has no more.
  PinnedMemory(profiler::Category category, std::string label, int64_t total_bytes);

  /// 1D and zero.
  at::Tensor take(int64_t numel, at::ScalarType dtype);

  static constexpr int64_t kAlignmentBytes = 64;
  static int64_t rounded(int64_t bytes);

 private:
  profiler::Category category_;
  std::string label_;
  int64_t left_bytes_;  // of the total
  at::Tensor block_;    // bytes; what is taken from it keeps it
  int64_t filled_bytes_ = 0;
};

}  // namespace shardlens::runtime
