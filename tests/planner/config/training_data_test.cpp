// Checks what a plan knows of data without reading any, and that a run finds the same.
#include "planner/config/training_data.h"

#include <zlib.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>

#include "models/data/dataset.h"
#include "models/families.h"
#include "planner/planner.h"
#include "tests/support/idx_files.h"
#include "tests/support/temporary_folder.h"

using namespace shardlens;
using namespace shardlens::planner;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;

namespace {

models::ModelSpec vit(int64_t px, int64_t channels, int64_t classes) {
  return models::make_spec("v", models::VitSizes{.image_px = px,
                                                 .patch_px = 4,
                                                 .channels = channels,
                                                 .layers = 1,
                                                 .heads = 1,
                                                 .width = 16,
                                                 .mlp_width = 16,
                                                 .classes = classes});
}

Config config_of(const std::string& data, int64_t batch = 4) {
  Config config;
  config.data = data;
  config.batch = batch;
  config.device = device_named("null:h200");
  return config;
}

void gzip(const std::string& path) {
  const std::string bytes = tests::read_file(path);
  const gzFile file = ::gzopen((path + ".gz").c_str(), "wb");
  REQUIRE(::gzwrite(file, bytes.data(), static_cast<unsigned>(bytes.size())) ==
          static_cast<int>(bytes.size()));
  REQUIRE(::gzclose(file) == Z_OK);
  std::filesystem::remove(path);
}

/// The train and test images that a rank keeps on its device.
int64_t input_bytes(const models::ModelSpec& spec, const Config& config) {
  const Plan plan = make_plan(spec, config, target_of(config, ""), {});
  return plan.at_peak.category_bytes[static_cast<size_t>(profiler::Category::input)];
}

}  // namespace

TEST_CASE("headers suffice to say what a run would load", "[plan]") {
  const tests::TemporaryFolder folder;
  tests::write_idx_dataset(folder.path(), {.train = 30, .test = 7, .px = 12, .classes = 3});
  if (GENERATE(false, true)) {
    for (const auto& file : std::filesystem::directory_iterator(folder.path())) gzip(file.path());
  }
  const TrainingData found = find_data(vit(12, 1, 3), config_of(folder.path()));
  const models::Dataset loaded = models::load_dataset(folder.path());
  CHECK(found == TrainingData{.kind = DataKind::idx,
                              .train_samples = loaded.train.count,
                              .test_samples = loaded.test.count,
                              .height = loaded.train.height,
                              .width = loaded.train.width});
}

TEST_CASE("the packaged images are as the planner knows them", "[plan]") {
  const models::ModelSpec spec = vit(28, 1, 10);
  CHECK(data_for(spec) == "fashion-mnist");
  CHECK(data_for(vit(28, 3, 10)) == "synthetic");
  CHECK(data_for(vit(32, 1, 10)) == "synthetic");
  const TrainingData known = find_data(spec, config_of("auto"));
  CHECK(known == find_data(spec, config_of("fashion-mnist")));
  if (!std::filesystem::exists("/usr/share/datasets/fashion-mnist")) {
    SKIP("the package dataset-fashion-mnist is not installed");
  }
  const models::Dataset loaded = models::load_dataset("fashion-mnist");
  CHECK(known == TrainingData{.kind = DataKind::idx,
                              .train_samples = loaded.train.count,
                              .test_samples = loaded.test.count,
                              .height = loaded.train.height,
                              .width = loaded.train.width,
                              .classes = loaded.classes});
}

TEST_CASE("a folder of IDX files is kept on the device, one of image files is not", "[plan]") {
  constexpr uint32_t kTrain = 50000, kTest = 5000, kPx = 12;
  const tests::TemporaryFolder idx, images;
  tests::write_idx_dataset(idx.path(), {.train = kTrain, .test = kTest, .px = kPx, .classes = 3});
  for (const char* name : {"a/1.png", "a/2.png", "b/3.png", "b/4.png"}) {
    const std::filesystem::path path = images.file(std::string("train/") + name);
    std::filesystem::create_directories(path.parent_path());
    tests::write_file(path, "");
  }
  const models::ModelSpec spec = vit(kPx, 1, 3);
  const int64_t one_batch = 4 * kPx * kPx;
  const int64_t of_idx = input_bytes(spec, config_of(idx.path()));
  const int64_t all = int64_t{kTrain + kTest} * (kPx * kPx + 1);
  CHECK(of_idx >= all + 4 * one_batch);
  CHECK(of_idx <= all + 8 * one_batch + 8 * int64_t{kTrain} + 4096);
  CHECK(input_bytes(spec, config_of(images.path())) <= 16 * one_batch);
}

TEST_CASE("data that a model cannot take is refused as train refuses it", "[plan]") {
  const tests::TemporaryFolder folder;
  tests::write_idx_dataset(folder.path(), {.train = 30, .test = 7, .px = 12, .classes = 3});
  const auto check = [&](const models::ModelSpec& spec, const Config& config,
                         const std::string& why) {
    CHECK_THROWS_MATCHES(make_plan(spec, config, target_of(config, ""), {}), std::invalid_argument,
                         MessageMatches(ContainsSubstring(why)));
  };
  check(vit(16, 1, 3), config_of(folder.path()), "takes images of 16 x 16 px");
  check(vit(12, 3, 3), config_of(folder.path()), "with 3 channels");
  check(vit(12, 1, 3), config_of(folder.path(), 31), "give --batch 30 or less");
  check(vit(12, 1, 3), config_of(folder.file("none")), "is not a folder");
  check(vit(28, 1, 3), config_of("auto"), "has 3 classes, but");
  check(models::find_spec("simple-model", 0), config_of(folder.path()), "takes no images");
}

TEST_CASE("steps of a run do not wrap") {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  Config config;
  config.epochs = kMost;
  CHECK(steps_in_run(7, config) == kMost / 7 * 7);
  config.steps = 12;
  CHECK(steps_in_run(7, config) == 12);
  config.epochs = 1;
  CHECK(steps_in_run(7, config) == 7);
}
