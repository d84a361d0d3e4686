#include "runtime/batches.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

namespace shardlens::runtime {

namespace {

/// [count] -> [samples_per_rank]: pads by wrapping, then takes every world_size-th from rank on.
at::Tensor split(const at::Tensor& order, int rank, int world_size) {
  const int64_t count = order.numel();
  const int64_t padded = samples_per_rank(count, world_size) * world_size;
  const at::Tensor positions = at::arange(rank, padded, world_size, at::kLong);
  return order.index_select(0, positions.remainder(count));
}

at::Tensor view_of(const std::vector<uint8_t>& bytes, at::IntArrayRef sizes) {
  return at::from_blob(const_cast<uint8_t*>(bytes.data()), sizes, at::kByte);
}

}  // namespace

int64_t samples_per_rank(int64_t count, int world_size) {
  return (count + world_size - 1) / world_size;
}

at::Tensor sample_order(int64_t count, uint64_t seed, int64_t epoch, int rank, int world_size) {
  auto generator = at::detail::createCPUGenerator(seed + static_cast<uint64_t>(epoch));
  return split(at::randperm(count, generator, at::kLong), rank, world_size);
}

at::Tensor in_order(int64_t count, int rank, int world_size) {
  return split(at::arange(count, at::kLong), rank, world_size);
}

Batches::Batches(const ImageSet& set, const c10::Device& device)
    : pixels_(view_of(set.pixels, {set.count, 1, set.height, set.width}).to(device)),
      labels_(view_of(set.labels, {set.count}).to(device)) {}

Batch Batches::at(const at::Tensor& indices) const {
  return {.images = pixels_.index_select(0, indices).to(at::kFloat).div_(255).sub_(0.5).div_(0.5),
          .labels = labels_.index_select(0, indices).to(at::kLong)};
}

Batch synthetic_batch(const models::VitSizes& sizes, int64_t samples, uint64_t seed,
                      const c10::Device& device) {
  auto generator = at::detail::createCPUGenerator(seed);
  const std::vector<int64_t> shape{samples, sizes.channels, sizes.image_px, sizes.image_px};
  return {.images = at::randn(shape, generator, at::kFloat).to(device),
          .labels = at::randint(sizes.classes, {samples}, generator, at::kLong).to(device)};
}

}  // namespace shardlens::runtime
