#include "runtime/train/batches.h"

#include <ATen/ATen.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "planner/config/training_data.h"
#include "tests/support/image_files.h"
#include "tests/support/temporary_folder.h"

using namespace shardlens;
using namespace shardlens::models;
using namespace shardlens::runtime;
using Catch::Matchers::ContainsSubstring;

namespace {

std::vector<int64_t> values(const at::Tensor& tensor) {
  return {tensor.data_ptr<int64_t>(), tensor.data_ptr<int64_t>() + tensor.numel()};
}

tests::Picture waves(int width, int height) {
  tests::Picture picture{.width = width, .height = height};
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) {
      for (int c = 0; c < 3; ++c) {
        picture.at(y, x, c) = static_cast<uint8_t>(x * 37 + y * 11 + c * 50);
      }
    }
  }
  return picture;
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

TEST_CASE("every sample is taken once, except those that fill the last row") {
  const int64_t count = GENERATE(1, 2, 5, 97, 100);
  const int world_size = GENERATE(1, 2, 3, 7);
  CAPTURE(count, world_size);
  std::vector<int64_t> taken(static_cast<size_t>(count));
  for (int rank = 0; rank < world_size; ++rank) {
    const auto order = values(sample_order(count, 3, 1, rank, world_size));
    CHECK(static_cast<int64_t>(order.size()) == planner::samples_per_rank(count, world_size));
    for (const int64_t sample : order) ++taken.at(sample);
  }
  int64_t extra = 0;
  for (const int64_t times : taken) {
    CHECK(times >= 1);
    extra += times - 1;
  }
  CHECK(extra == planner::samples_per_rank(count, world_size) * world_size - count);
}

TEST_CASE("images are scaled as ToTensor and Normalize(0.5, 0.5) scale them") {
  ImageSet set{.count = 2, .height = 16, .width = 16, .pixels = {}, .labels = {3, 9}};
  for (int pixel = 0; pixel < 512; ++pixel) set.pixels.push_back(static_cast<uint8_t>(pixel));
  const Batch batch = Batches(set).at(at::tensor({1, 0, 1}, at::kLong));
  CHECK(batch.input.sizes() == at::IntArrayRef{3, 1, 16, 16});
  CHECK(values(batch.targets) == std::vector<int64_t>{9, 3, 9});
  const float* scaled = batch.input.data_ptr<float>();
  for (int pixel = 0; pixel < 256; ++pixel) {
    CHECK(scaled[pixel] == (static_cast<float>(pixel) / 255.0F - 0.5F) / 0.5F);
  }
}

// Channel 1 of the output of torchvision 0.26's Resize(px) and CenterCrop(px) on Pillow 13.
TEST_CASE("images are cut to shape as torchvision cuts them") {
  struct Case {
    int width, height;
    int64_t px;
    std::vector<std::vector<int>> rows;
  };
  const std::vector<Case> cases = {
      {9,
       6,
       4,
       {{120, 173, 202, 57}, {136, 189, 123, 53}, {151, 204, 91, 59}, {167, 220, 107, 75}}},
      {5,
       12,
       4,
       {{90, 133, 177, 220}, {105, 148, 192, 235}, {120, 163, 207, 154}, {134, 177, 221, 72}}},
      {3,
       4,
       6,
       {{53, 62, 81, 99, 118, 127},
        {58, 67, 86, 104, 123, 132},
        {64, 73, 92, 110, 129, 138},
        {69, 78, 97, 115, 134, 143},
        {75, 84, 103, 121, 140, 149},
        {80, 89, 108, 126, 145, 154}}}};
  const tests::TemporaryFolder folder;
  for (const Case& c : cases) {
    CAPTURE(c.width, c.height, c.px);
    tests::write_picture(folder.file("p.png"), waves(c.width, c.height));
    const at::Tensor square = read_square(folder.file("p.png"), c.px, 3);
    REQUIRE(square.sizes() == at::IntArrayRef{3, c.px, c.px});
    for (int64_t y = 0; y < c.px; ++y) {
      for (int64_t x = 0; x < c.px; ++x) {
        CAPTURE(y, x);
        CHECK(std::abs(square[1][y][x].item<int>() - c.rows[y][x]) <= 1);
      }
    }
  }
}

TEST_CASE("a strip of pixels is refused, not enlarged") {
  const tests::TemporaryFolder folder;
  tests::write_picture(folder.file("p.png"), tests::plain_picture(2000, 1, 1, 2, 3));
  CHECK_THROWS_WITH(read_square(folder.file("p.png"), 224, 3),
                    ContainsSubstring("p.png: has sides of 1 and 2000 px"));
}

TEST_CASE("batches of files are in the order of the indices") {
  const tests::TemporaryFolder folder;
  std::vector<models::ImageFile> files;
  for (int i = 0; i < 3; ++i) {
    files.push_back({folder.file(std::to_string(i) + ".png"), 10 + i});
    const auto value = static_cast<uint8_t>(i * 100);
    tests::write_picture(files.back().path, tests::plain_picture(8, 6, value, value, value));
  }
  const FileBatches batches(files, 4, 1, c10::Device(c10::kCPU));
  const Batch batch = batches.at(at::tensor({2, 0}, at::kLong));
  CHECK(batch.input.sizes() == at::IntArrayRef{2, 1, 4, 4});
  CHECK(values(batch.targets) == std::vector<int64_t>{12, 10});
  CHECK(batch.input[0][0][2][2].item<float>() == (200.0F / 255 - 0.5F) / 0.5F);
  CHECK(batch.input[1][0][2][2].item<float>() == -1.0F);
}

TEST_CASE("synthetic batches are as large as the spec says, and follow from the seed") {
  for (const char* model : {"vit-tutorial", "simple-model", "transformer", "llama-1b"}) {
    CAPTURE(model);
    const models::ModelSpec spec = models::find_spec(model);
    const auto batch = [&](uint64_t seed) { return synthetic_batch(spec, 3, seed, at::kCPU); };
    const Batch one = batch(4);
    CHECK(static_cast<int64_t>(one.input.nbytes()) == spec.input_bytes(3));
    CHECK(at::equal(one.input, batch(4).input));
    CHECK_FALSE(at::equal(one.input, batch(5).input));
    if (!one.targets.defined()) {
      CHECK(spec.target_bytes(3) == 0);
      continue;
    }
    CHECK(static_cast<int64_t>(one.targets.nbytes()) == spec.target_bytes(3));
    CHECK(one.targets.min().item<int64_t>() >= 0);
    CHECK(one.targets.max().item<int64_t>() < spec.sample.classes);
  }
}

TEST_CASE("the target of a token is the next token") {
  const Batch batch = synthetic_batch(models::find_spec("llama-1b", 9), 2, 1, at::kCPU);
  CHECK(at::equal(batch.input.narrow(1, 1, 8), batch.targets.narrow(1, 0, 8)));
}
