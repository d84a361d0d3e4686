#include "models/data/dataset.h"

#include <array>
#include <catch2/catch_get_random_seed.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cmath>
#include <filesystem>
#include <random>
#include <stdexcept>

#include "tests/support/gzip_file.h"
#include "tests/support/idx_files.h"

namespace shardlens::runtime {
namespace {

using namespace shardlens;
using namespace shardlens::models;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::WithinAbs;
using tests::idx_bytes;

const std::array<std::string, 4> kFiles = {"train-images-idx3-ubyte", "train-labels-idx1-ubyte",
                                           "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"};

std::string images(uint32_t count, char first) {
  std::string pixels;
  for (uint32_t i = 0; i < count * 2 * 3; ++i) pixels += static_cast<char>(first + i);
  return idx_bytes(0x803, {count, 2, 3}, pixels);
}

// Three images of 2 x 3 to train on, two to test with.
class SmallDataset {
 public:
  explicit SmallDataset(bool gzipped) {
    write(kFiles[0], images(3, 1), gzipped);
    write(kFiles[1], idx_bytes(0x801, {3}, {4, 0, 2}), gzipped);
    write(kFiles[2], images(2, 100), gzipped);
    write(kFiles[3], idx_bytes(0x801, {2}, {1, 6}), gzipped);
  }

  std::string path() const { return folder_.path(); }
  std::string file(const std::string& name) const { return folder_.file(name); }
  void write(const std::string& name, const std::string& bytes, bool gzipped = false) const {
    if (gzipped) {
      tests::write_gzip_file(file(name + ".gz"), bytes);
    } else {
      tests::write_file(file(name), bytes);
    }
  }

 private:
  tests::TemporaryFolder folder_;
};

void check_small(const models::Dataset& dataset) {
  CHECK(dataset.train.count == 3);
  CHECK(dataset.train.height == 2);
  CHECK(dataset.train.width == 3);
  REQUIRE(dataset.train.pixels.size() == 18);
  CHECK(dataset.train.pixels.front() == 1);
  CHECK(dataset.train.pixels.back() == 18);
  CHECK(dataset.train.labels == std::vector<uint8_t>{4, 0, 2});
  REQUIRE(dataset.test.pixels.size() == 12);
  CHECK(dataset.test.pixels.back() == 111);
  CHECK(dataset.test.labels == std::vector<uint8_t>{1, 6});
  CHECK(dataset.classes == 7);
}

std::string refusal_of(const std::string& where) {
  try {
    load_dataset(where);
  } catch (const std::invalid_argument& error) {
    const std::string text = error.what();
    CHECK_THAT(text, ContainsSubstring("--data DIR"));
    CHECK(text.find('\n') == std::string::npos);
    return text;
  }
  FAIL("accepted: " << where);
  return "";
}

TEST_CASE("four IDX files are read, plain and gzipped alike") {
  const SmallDataset data(GENERATE(false, true));
  check_small(load_dataset(data.path()));
}

TEST_CASE("a plain file wins over its gzipped form") {
  const SmallDataset data(true);
  data.write(kFiles[3], idx_bytes(0x801, {2}, {9, 9}));
  CHECK(load_dataset(data.path()).test.labels == std::vector<uint8_t>{9, 9});
}

TEST_CASE("each missing file is named") {
  const bool gzipped = GENERATE(false, true);
  const SmallDataset data(gzipped);
  const std::string name = kFiles.at(GENERATE(0u, 1u, 2u, 3u));
  std::filesystem::remove(data.file(name + (gzipped ? ".gz" : "")));
  CHECK_THAT(refusal_of(data.path()), ContainsSubstring(name + ": is missing"));
}

TEST_CASE("a path that is not a folder is refused by name") {
  const SmallDataset data(false);
  CHECK_THAT(refusal_of("fashion_mnist"), ContainsSubstring("'fashion_mnist'"));
  CHECK_THAT(refusal_of(data.file(kFiles[0])), ContainsSubstring("is not a folder"));
  CHECK_THAT(refusal_of(""), ContainsSubstring("is not a folder"));
  CHECK_THAT(refusal_of(std::string(5000, 'x')), ContainsSubstring("is not a folder"));
}

TEST_CASE("every truncation of every file is refused") {
  const bool gzipped = GENERATE(false, true);
  const SmallDataset data(gzipped);
  for (const std::string& name : kFiles) {
    const std::string path = data.file(name + (gzipped ? ".gz" : ""));
    const std::string whole = tests::read_file(path);
    for (size_t length = 0; length < whole.size(); ++length) {
      CAPTURE(path, length);
      tests::write_file(path, whole.substr(0, length));
      CHECK_THAT(refusal_of(data.path()), ContainsSubstring(path + ": is truncated"));
    }
    tests::write_file(path, whole);
  }
  check_small(load_dataset(data.path()));
}

TEST_CASE("bytes after the data are refused") {
  const bool gzipped = GENERATE(false, true);
  const SmallDataset data(gzipped);
  for (const std::string& name : kFiles) {
    const std::string path = data.file(name + (gzipped ? ".gz" : ""));
    const std::string whole = tests::read_file(path);
    tests::write_file(path, whole + '\0');
    CHECK_THAT(refusal_of(data.path()), ContainsSubstring(path));
    tests::write_file(path, whole);
  }
}

TEST_CASE("bytes after the data inside a gzip stream are refused") {
  const SmallDataset data(true);
  data.write(kFiles[1], idx_bytes(0x801, {3}, {4, 0, 2, 1}), true);
  CHECK_THAT(refusal_of(data.path()), ContainsSubstring("more bytes than its header"));
}

struct WrongFile {
  size_t file;
  std::string bytes;
  std::string problem;
};

TEST_CASE("a header that cannot be right is refused before the data is read") {
  const auto wrong = GENERATE(values<WrongFile>({
      {0, idx_bytes(0x801, {3}, "abc"), "not an IDX file of images"},
      {0, idx_bytes(0x803, {0, 2, 3}, ""), "no pixels"},
      {0, idx_bytes(0x803, {3, 0, 3}, ""), "no pixels"},
      {0, idx_bytes(0x803, {0xffffffff, 0xffffffff, 0xffffffff}, ""), "4 GiB"},
      {0, idx_bytes(0x803, {0x10000, 0x10000, 2}, ""), "4 GiB"},
      {1, idx_bytes(0x803, {3, 1, 1}, "abc"), "not an IDX file of labels"},
      {1, idx_bytes(0x801, {2}, "ab"), "2 labels for 3 images"},
      {1, idx_bytes(0x801, {0xffffffff}, "ab"), "labels for 3 images"},
      {2, idx_bytes(0x803, {2, 3, 2}, "abcdefghijkl"), "2x3 but test images 3x2"},
      {3, "<html>not found</html>", "not an IDX file of labels"},
  }));
  const bool gzipped = GENERATE(false, true);
  const SmallDataset data(gzipped);
  data.write(kFiles[wrong.file], wrong.bytes, gzipped);
  CHECK_THAT(refusal_of(data.path()), ContainsSubstring(wrong.problem));
}

TEST_CASE("a large claim over a small file is refused without reading gigabytes") {
  const SmallDataset data(false);
  for (const int images : {0, 2}) {
    data.write(kFiles[images], idx_bytes(0x803, {images == 0 ? 3u : 2u, 0x4000, 0x10000}, "abc"));
  }
  CHECK_THAT(refusal_of(data.path()), ContainsSubstring("is truncated"));
}

TEST_CASE("a .gz file that is not gzip is refused") {
  const SmallDataset data(true);
  tests::write_file(data.file(kFiles[0] + ".gz"), images(3, 1));
  CHECK_THAT(refusal_of(data.path()), ContainsSubstring("is damaged"));
}

TEST_CASE("byte flips in gzipped files are refused or change nothing") {
  const auto seed = Catch::getSeed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  const SmallDataset data(true);
  int refused = 0;
  for (int round = 0; round < 1000; ++round) {
    const std::string path = data.file(kFiles[random() % kFiles.size()] + ".gz");
    const std::string whole = tests::read_file(path);
    std::string flipped = whole;
    flipped[random() % flipped.size()] ^= static_cast<char>(1 << random() % 8);
    CAPTURE(round, path);
    tests::write_file(path, flipped);
    try {
      check_small(load_dataset(data.path()));
    } catch (const std::invalid_argument&) {
      ++refused;
    }
    tests::write_file(path, whole);
  }
  CHECK(refused > 500);  // all but the few header bytes that say nothing about the data
}

TEST_CASE("byte flips in plain files are refused or give data sets of the same form") {
  const auto seed = Catch::getSeed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  const SmallDataset data(false);
  int refused = 0;
  for (int round = 0; round < 1000; ++round) {
    const std::string path = data.file(kFiles[random() % kFiles.size()]);
    const std::string whole = tests::read_file(path);
    std::string flipped = whole;
    flipped[random() % flipped.size()] ^= static_cast<char>(1 << random() % 8);
    CAPTURE(round, path);
    tests::write_file(path, flipped);
    try {
      const models::Dataset dataset = load_dataset(data.path());
      CHECK(dataset.train.pixels.size() == 18);
      CHECK(dataset.test.labels.size() == 2);
    } catch (const std::invalid_argument&) {
      ++refused;
    }
    tests::write_file(path, whole);
  }
  CHECK(refused > 250);  // the headers are about half of these small files
}

TEST_CASE("the packaged Fashion-MNIST has its known counts, mean and deviation") {
  if (!std::filesystem::exists("/usr/share/datasets/fashion-mnist")) {
    SKIP("the package dataset-fashion-mnist is not installed");
  }
  const models::Dataset dataset = load_dataset("fashion-mnist");
  CHECK(dataset.classes == 10);
  CHECK(dataset.train.pixels.size() == 60000u * 28 * 28);
  CHECK(dataset.test.pixels.size() == 10000u * 28 * 28);
  std::array<int, 10> train_labels{};
  std::array<int, 10> test_labels{};
  for (const uint8_t label : dataset.train.labels) ++train_labels.at(label);
  for (const uint8_t label : dataset.test.labels) ++test_labels.at(label);
  for (const int count : train_labels) CHECK(count == 6000);
  for (const int count : test_labels) CHECK(count == 1000);
  double sum = 0;
  double sum_of_squares = 0;
  for (const uint8_t pixel : dataset.train.pixels) {
    sum += pixel / 255.0;
    sum_of_squares += pixel / 255.0 * (pixel / 255.0);
  }
  const auto numel = static_cast<double>(dataset.train.pixels.size());
  const double mean = sum / numel;
  CHECK_THAT(mean, WithinAbs(0.2860, 5e-5));
  CHECK_THAT(std::sqrt(sum_of_squares / numel - mean * mean), WithinAbs(0.3530, 5e-5));
}

}  // namespace
}  // namespace shardlens::runtime
