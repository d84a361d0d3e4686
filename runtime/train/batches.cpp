#include "runtime/train/batches.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "models/data/image_file.h"
#include "planner/step/samples.h"
#include "runtime/execute/step_ops.h"

namespace shardlens::runtime {

namespace {

at::Tensor view_of(const std::vector<uint8_t>& bytes, at::IntArrayRef sizes) {
  return at::from_blob(const_cast<uint8_t*>(bytes.data()), sizes, at::kByte);
}

/// Throws for images far from square. Resizing comes before cropping, so a line of pixels would
/// take gigabytes.
void check_sides(const std::string& path, int64_t shorter, int64_t longer) {
  constexpr int64_t kMostRatio = 100;
  if (longer <= kMostRatio * shorter) return;
  throw std::invalid_argument(
      fmt::format("{}: has sides of {} and {} px, too narrow to cut a square from; remove the file",
                  path, shorter, longer));
}

/// Returns where CenterCrop begins. It rounds halves to the even number.
int64_t crop_offset(int64_t size, int64_t px) {
  return static_cast<int64_t>(std::nearbyint(static_cast<double>(size - px) / 2));
}

}  // namespace

at::Tensor sample_order(int64_t count, uint64_t seed, int64_t epoch, int rank, int world_size) {
  auto generator = at::detail::createCPUGenerator(seed + static_cast<uint64_t>(epoch));
  return planner::split<AtenStepOps>(at::randperm(count, generator, at::kLong), rank, world_size);
}

at::Tensor sequential_split(int64_t count, int rank, int world_size) {
  return planner::split<AtenStepOps>(at::arange(count, at::kLong), rank, world_size);
}

Batches::Batches(const models::ImageSet& set, const c10::Device& device)
    : pixels_(view_of(set.pixels, {set.count, 1, set.height, set.width}).to(device)),
      labels_(view_of(set.labels, {set.count}).to(device)) {}

models::Batch Batches::at(const at::Tensor& indices) const {
  return planner::gather<AtenStepOps>(pixels_, labels_, indices);
}

FileBatches::FileBatches(const std::vector<models::ImageFile>& files, int64_t px, int64_t channels,
                         const c10::Device& device)
    : files_(files), px_(px), channels_(channels), device_(device) {}

models::Batch FileBatches::at(const at::Tensor& indices) const {
  const auto* chosen = indices.data_ptr<int64_t>();
  const int64_t count = indices.numel();
  const at::Tensor pixels = at::empty({count, channels_, px_, px_}, at::kByte);
  const at::Tensor labels = at::empty({count}, at::kLong);
  for (int64_t i = 0; i < count; ++i) {
    const models::ImageFile& file = files_[static_cast<size_t>(chosen[i])];
    pixels[i].copy_(read_square(file.path, px_, channels_));
    labels[i] = file.label;
  }
  return planner::move_batch<AtenStepOps>(device_, pixels, labels);
}

at::Tensor read_square(const std::string& path, int64_t px, int64_t channels) {
  models::DecodedImage image = models::decode_image(path, channels);
  const at::Tensor pixels =
      at::from_blob(image.pixels.data(), {1, image.height, image.width, channels}, at::kByte)
          .permute({0, 3, 1, 2});
  const int64_t shorter = std::min(image.height, image.width);
  check_sides(path, shorter, std::max(image.height, image.width));
  const int64_t height = px * image.height / shorter, width = px * image.width / shorter;
  const at::Tensor resized =
      at::_upsample_bilinear2d_aa(pixels, {height, width}, /*align_corners=*/false);
  return resized[0]
      .narrow(1, crop_offset(height, px), px)
      .narrow(2, crop_offset(width, px), px)
      .contiguous();
}

models::Batch OwnBatches::at(const at::Tensor& indices) const {
  models::Batch batch = data_.at(indices);
  const int64_t rows = batch.input.defined() ? batch.input.size(0) : 0;
  if (rows != indices.numel()) {
    throw std::invalid_argument(
        fmt::format("the program's samples: asked for {}, they gave an input of {} rows; give one "
                    "row for each index",
                    indices.numel(), rows));
  }
  batch.input = batch.input.to(device_);
  if (batch.targets.defined()) batch.targets = batch.targets.to(device_);
  return batch;
}

models::Batch synthetic_batch(const models::ModelSpec& spec, int64_t samples, uint64_t seed,
                              const c10::Device& device) {
  auto generator = at::detail::createCPUGenerator(seed);
  const models::SampleSpec& sample = spec.sample;
  if (sample.input == models::InputKind::tokens) {
    // There is one token more: the target of each token is the next one.
    const int64_t seq = sample.shape[0];
    const at::Tensor ids = at::randint(sample.classes, {samples, seq + 1}, generator, at::kLong);
    const auto part = [&](int64_t first) {
      // This copies even if a view would do, so that every batch takes the same memory.
      return ids.narrow(1, first, seq).clone(at::MemoryFormat::Contiguous).to(device);
    };
    models::Batch batch{.input = part(0), .targets = {}};
    if (spec.target_bytes(1) > 0) batch.targets = part(1);
    return batch;
  }
  std::vector<int64_t> shape = sample.shape;
  shape.insert(shape.begin(), samples);
  return {.input = at::randn(shape, generator, at::kFloat).to(device),
          .targets = at::randint(sample.classes, {samples}, generator, at::kLong).to(device)};
}

}  // namespace shardlens::runtime
