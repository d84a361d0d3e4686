// Declares batches, and the samples of a program that trains a model of its own.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>

namespace shardlens::models {

struct Batch {
  at::Tensor input;    // as SampleSpec says
  at::Tensor targets;  // undefined where the loss needs none
};

/// Gives a program's own samples, by number.
struct OwnData {
  int64_t samples = 0;
  /// Returns the samples at `indices`: [batch], int64, on the CPU. The batch is then moved to the
  /// rank's device. Every rank calls it in a process of its own, one batch after the other.
  std::function<Batch(const at::Tensor& indices)> at{};
};

}  // namespace shardlens::models
