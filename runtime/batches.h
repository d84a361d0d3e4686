// Where a rank's batches come from: images kept on its device as bytes and gathered by index (no
// loader, no per-sample work), or one random batch that every step uses.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>

#include "runtime/dataset.h"
#include "runtime/executor.h"

namespace shardlens::runtime {

/// The samples of one epoch that one rank takes, by the rule of PyTorch's DistributedSampler:
/// randperm seeded with seed + epoch, padded by wrapping to a multiple of world_size, rank r takes
/// r, r + world_size, ... Every rank gets the same number. [samples], int64
at::Tensor sample_order(int64_t count, uint64_t seed, int64_t epoch, int rank, int world_size);

/// The same split without a permutation (evaluation). Samples that exist twice by wrapping have
/// positions at or past `count` in the padded list.
at::Tensor in_order(int64_t count, int rank, int world_size);

int64_t samples_per_rank(int64_t count, int world_size);

/// One image set, kept as bytes on a device; on the CPU it borrows the set's memory.
class Batches {
 public:
  explicit Batches(const ImageSet& set, const c10::Device& device = c10::Device(c10::kCPU));

  /// ToTensor and Normalize(0.5, 0.5): ((pixel / 255) - 0.5) / 0.5. `indices` [samples], int64, on
  /// the same device.
  Batch at(const at::Tensor& indices) const;

 private:
  at::Tensor pixels_;  // [count, 1, height, width] uint8
  at::Tensor labels_;  // [count] uint8
};

/// A batch of normal noise with random labels, drawn on the CPU from the seed.
Batch synthetic_batch(const models::VitSizes& sizes, int64_t samples, uint64_t seed,
                      const c10::Device& device);

}  // namespace shardlens::runtime
