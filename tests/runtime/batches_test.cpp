#include "runtime/batches.h"

#include <ATen/ATen.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators_range.hpp>

using namespace shardlens::runtime;

namespace {

std::vector<int64_t> values(const at::Tensor& tensor) {
  return {tensor.data_ptr<int64_t>(), tensor.data_ptr<int64_t>() + tensor.numel()};
}

}  // namespace

// The lists are what torch.utils.data.DistributedSampler of PyTorch 2.11 printed.
TEST_CASE("sample order is DistributedSampler's") {
  struct Case {
    int64_t count;
    int world_size;
    uint64_t seed;
    int64_t epoch;
    std::vector<std::vector<int64_t>> ranks;
  };
  const std::vector<Case> cases = {
      {10, 3, 0, 0, {{4, 5, 0, 2}, {1, 3, 8, 4}, {7, 9, 6, 1}}},
      {10, 4, 5, 2, {{5, 1, 8}, {0, 7, 2}, {3, 9, 5}, {4, 6, 0}}},
      {7, 2, 1, 1, {{2, 3, 6, 5}, {4, 0, 1, 2}}},
      {3, 5, 0, 0, {{2}, {0}, {1}, {2}, {0}}},
  };
  for (const Case& c : cases) {
    for (int rank = 0; rank < c.world_size; ++rank) {
      CAPTURE(c.count, c.world_size, c.seed, c.epoch, rank);
      CHECK(values(sample_order(c.count, c.seed, c.epoch, rank, c.world_size)) == c.ranks[rank]);
    }
  }
}

TEST_CASE("every sample is taken once, but for those that fill the last row") {
  const int64_t count = GENERATE(1, 2, 5, 97, 100);
  const int world_size = GENERATE(1, 2, 3, 7);
  CAPTURE(count, world_size);
  std::vector<int64_t> taken(static_cast<size_t>(count));
  for (int rank = 0; rank < world_size; ++rank) {
    const auto order = values(sample_order(count, 3, 1, rank, world_size));
    CHECK(static_cast<int64_t>(order.size()) == samples_per_rank(count, world_size));
    for (const int64_t sample : order) ++taken.at(sample);
  }
  int64_t extra = 0;
  for (const int64_t times : taken) {
    CHECK(times >= 1);
    extra += times - 1;
  }
  CHECK(extra == samples_per_rank(count, world_size) * world_size - count);
}

TEST_CASE("images are scaled as ToTensor and Normalize(0.5, 0.5) scale them") {
  ImageSet set{.count = 2, .height = 16, .width = 16, .pixels = {}, .labels = {3, 9}};
  for (int pixel = 0; pixel < 512; ++pixel) set.pixels.push_back(static_cast<uint8_t>(pixel));
  const Batch batch = Batches(set).at(at::tensor({1, 0, 1}, at::kLong));
  CHECK(batch.images.sizes() == at::IntArrayRef{3, 1, 16, 16});
  CHECK(values(batch.labels) == std::vector<int64_t>{9, 3, 9});
  const float* scaled = batch.images.data_ptr<float>();
  for (int pixel = 0; pixel < 256; ++pixel) {
    CHECK(scaled[pixel] == (static_cast<float>(pixel) / 255.0F - 0.5F) / 0.5F);
  }
}
