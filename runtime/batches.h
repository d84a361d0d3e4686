// Where a rank's batches come from: images kept on its device as bytes and gathered by index (no
// loader, no per-sample work), image files read as they are needed, or one random batch that every
// step uses.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>

#include "models/spec.h"
#include "planner/image_folder.h"
#include "runtime/dataset.h"
#include "runtime/own_data.h"

namespace shardlens::runtime {

/// The samples of one epoch that one rank takes, by the rule of PyTorch's DistributedSampler:
/// randperm seeded with seed + epoch, padded by wrapping to a multiple of world_size, rank r takes
/// r, r + world_size, ... Every rank gets the same number. [samples], int64
at::Tensor sample_order(int64_t count, uint64_t seed, int64_t epoch, int rank, int world_size);

/// The same split without a permutation (evaluation). Samples that exist twice by wrapping have
/// positions at or past `count` in the padded list.
at::Tensor in_order(int64_t count, int rank, int world_size);

/// Samples by index. Indices are [samples], int64, on the device that the source names.
class BatchSource {
 public:
  virtual ~BatchSource() = default;
  virtual c10::Device index_device() const = 0;
  /// Pixels are scaled as ToTensor and Normalize(0.5, 0.5) do: ((pixel / 255) - 0.5) / 0.5.
  virtual Batch at(const at::Tensor& indices) const = 0;
};

/// One image set, kept as bytes on a device; on the CPU it borrows the set's memory.
class Batches : public BatchSource {
 public:
  explicit Batches(const ImageSet& set, const c10::Device& device = c10::Device(c10::kCPU));

  c10::Device index_device() const override { return pixels_.device(); }
  Batch at(const at::Tensor& indices) const override;

 private:
  at::Tensor pixels_;  // [count, 1, height, width] uint8
  at::Tensor labels_;  // [count] uint8
};

/// Image files, read and cut to shape batch by batch: a folder may be larger than memory. Borrows
/// the list. `at` throws std::runtime_error naming a file that is no image.
class FileBatches : public BatchSource {
 public:
  /// `px`, `channels`: what the model takes.
  FileBatches(const std::vector<planner::ImageFile>& files, int64_t px, int64_t channels,
              const c10::Device& device);

  c10::Device index_device() const override { return c10::Device(c10::kCPU); }
  Batch at(const at::Tensor& indices) const override;

 private:
  const std::vector<planner::ImageFile>& files_;
  int64_t px_;
  int64_t channels_;
  c10::Device device_;
};

/// Of a program's own samples, which it borrows.
class OwnBatches : public BatchSource {
 public:
  OwnBatches(const OwnData& data, const c10::Device& device) : data_(data), device_(device) {}

  c10::Device index_device() const override { return c10::Device(c10::kCPU); }
  Batch at(const at::Tensor& indices) const override;

 private:
  const OwnData& data_;
  c10::Device device_;
};

/// An image file's pixels [channels, px, px], uint8, on the CPU: resized until its short side has
/// `px` (bilinear, antialiased), then cut out of the middle, as torchvision's Resize and
/// CenterCrop.
at::Tensor read_square(const std::string& path, int64_t px, int64_t channels);

/// Normal noise with random classes, or random tokens and the ones behind them, drawn on the CPU
/// from the seed.
Batch synthetic_batch(const models::ModelSpec& spec, int64_t samples, uint64_t seed,
                      const c10::Device& device);

}  // namespace shardlens::runtime
