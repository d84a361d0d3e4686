// Gives a rank its batches: images kept on its device as bytes and gathered by index (no loader, no
// per-sample work), image files read when needed, or one random batch that every step uses.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>

#include "models/data/dataset.h"
#include "models/data/image_folder.h"
#include "models/own_data.h"
#include "models/spec.h"

namespace shardlens::runtime {

/// Returns the samples [samples], int64, that one rank takes in one epoch, by the rule of PyTorch's
/// DistributedSampler: randperm seeded with seed + epoch, padded by wrapping to a multiple of
/// world_size; rank r takes r, r + world_size, ... Every rank gets equally many.
at::Tensor sample_order(int64_t count, uint64_t seed, int64_t epoch, int rank, int world_size);

/// Returns the same split without a permutation (for evaluation). A sample that wrapping repeats
/// has a position at or past `count` in the padded list.
at::Tensor sequential_split(int64_t count, int rank, int world_size);

/// Gives samples by index. Indices are [samples], int64, on the source's device.
class BatchSource {
 public:
  virtual ~BatchSource() = default;
  virtual c10::Device index_device() const = 0;
  /// Returns the samples at `indices`. Pixels are scaled as ToTensor and Normalize(0.5, 0.5) do:
  /// ((pixel / 255) - 0.5) / 0.5.
  virtual models::Batch at(const at::Tensor& indices) const = 0;
};

/// Gives samples of one image set, kept as bytes on a device. On the CPU it borrows the set's
/// memory.
class Batches : public BatchSource {
 public:
  explicit Batches(const models::ImageSet& set, const c10::Device& device = c10::Device(c10::kCPU));

  c10::Device index_device() const override { return pixels_.device(); }
  models::Batch at(const at::Tensor& indices) const override;

 private:
  at::Tensor pixels_;  // [count, 1, height, width] uint8
  at::Tensor labels_;  // [count] uint8
};

/// Gives samples of image files, read and cropped batch by batch, so a folder may be larger than
/// memory. It borrows the list. `at` throws std::runtime_error naming a file that is not an image.
class FileBatches : public BatchSource {
 public:
  /// Takes the image size `px` and the `channels` that the model expects.
  FileBatches(const std::vector<models::ImageFile>& files, int64_t px, int64_t channels,
              const c10::Device& device);

  c10::Device index_device() const override { return c10::Device(c10::kCPU); }
  models::Batch at(const at::Tensor& indices) const override;

 private:
  const std::vector<models::ImageFile>& files_;
  int64_t px_;
  int64_t channels_;
  c10::Device device_;
};

/// Gives a program's own samples, which it borrows.
class OwnBatches : public BatchSource {
 public:
  OwnBatches(const models::OwnData& data, const c10::Device& device)
      : data_(data), device_(device) {}

  c10::Device index_device() const override { return c10::Device(c10::kCPU); }
  models::Batch at(const at::Tensor& indices) const override;

 private:
  const models::OwnData& data_;
  c10::Device device_;
};

/// Returns an image file's pixels [channels, px, px], uint8, on the CPU. The image is resized so
/// that its short side has `px` (bilinear, antialiased), then cropped to the middle, as
/// torchvision's Resize and CenterCrop do.
at::Tensor read_square(const std::string& path, int64_t px, int64_t channels);

/// Returns a random batch, drawn on the CPU from the seed: normal noise with random classes, or
/// random tokens and, as targets, the tokens that follow them.
models::Batch synthetic_batch(const models::ModelSpec& spec, int64_t samples, uint64_t seed,
                              const c10::Device& device);

}  // namespace shardlens::runtime
