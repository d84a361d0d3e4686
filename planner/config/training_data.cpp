#include "planner/config/training_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <stdexcept>

#include "models/data/idx_file.h"

namespace shardlens::planner {

namespace {

constexpr TrainingData kFashionMnistData = {.kind = DataKind::idx,
                                            .train_samples = 60000,
                                            .test_samples = 10000,
                                            .height = 28,
                                            .width = 28,
                                            .classes = 10};

bool takes_images(const models::ModelSpec& spec) {
  return spec.sample.input == models::InputKind::images;
}

TrainingData data_in(const std::string& folder) {
  if (models::is_image_folder(folder)) return data_of(models::list_image_folder(folder));
  const models::IdxFolder files = models::open_idx_folder(folder);
  return {.kind = DataKind::idx,
          .train_samples = files.train.count,
          .test_samples = files.test.count,
          .height = files.train.height,
          .width = files.train.width};
}

/// The images that a model takes, which are square.
struct ImageShape {
  int64_t channels = 0;
  int64_t px = 0;
};

ImageShape images_of(const models::ModelSpec& spec) {
  return {.channels = spec.sample.shape[0], .px = spec.sample.shape[1]};
}

void check_size(const TrainingData& data, const ImageShape& image, const Config& config) {
  if (data.height == image.px && data.width == image.px && image.channels == 1) return;
  throw std::invalid_argument(fmt::format(
      "--model {}: takes images of {} x {} px with {} channels, but --data {} has {} x "
      "{} px with 1; give a model file with the data's sizes",
      config.model, image.px, image.px, image.channels, config.data, data.height, data.width));
}

void check_channels(const ImageShape& image, const Config& config) {
  if (image.channels == 1 || image.channels == 3) return;
  throw std::invalid_argument(
      fmt::format("--model {}: takes {} channels, but image files have 1 or 3; give a model file "
                  "with 1 or 3, or --data synthetic",
                  config.model, image.channels));
}

void check_batch(const TrainingData& data, const Config& config) {
  const int64_t ranks = world_size_of(config);
  const int64_t samples = samples_per_rank(data.train_samples, ranks);
  if (config.batch <= samples / config.accumulate) return;
  throw std::invalid_argument(
      fmt::format("--batch {}: each of {} ranks has {} samples in --data {}; give --batch {} or "
                  "less, or --data synthetic",
                  config.batch, ranks, samples, config.data, samples));
}

}  // namespace

TrainingData data_of(const models::ImageFolder& folder) {
  return {.kind = DataKind::image_folder,
          .train_samples = static_cast<int64_t>(folder.train.size()),
          .test_samples = static_cast<int64_t>(folder.test.size()),
          .classes = static_cast<int64_t>(folder.classes.size())};
}

std::string data_for(const models::ModelSpec& spec) {
  if (!takes_images(spec)) return kSyntheticData;
  const ImageShape image = images_of(spec);
  const bool is_fashion = image.px == kFashionMnistData.height && image.channels == 1;
  return is_fashion ? models::kFashionMnist : kSyntheticData;
}

void expect_image_model(const models::ModelSpec& spec, const Config& config) {
  if (takes_images(spec)) return;
  throw std::invalid_argument(fmt::format(
      "--data {}: the model {} takes no images, and there is no other data for it; give --data "
      "synthetic",
      config.data, spec.name));
}

TrainingData find_data(const models::ModelSpec& spec, const Config& config) {
  const std::string name = config.data == "auto" ? data_for(spec) : config.data;
  if (name == kSyntheticData) return {};
  expect_image_model(spec, config);
  return name == models::kFashionMnist ? kFashionMnistData : data_in(name);
}

void check_data(const TrainingData& data, const models::ModelSpec& spec, const Config& config) {
  if (data.kind == DataKind::synthetic) return;
  if (data.kind == DataKind::idx) check_size(data, images_of(spec), config);
  if (data.kind == DataKind::image_folder) check_channels(images_of(spec), config);
  if (data.kind != DataKind::own && data.classes > spec.sample.classes) {
    throw std::invalid_argument(
        fmt::format("--model {}: has {} classes, but --data {} has {}; give a model file with more",
                    config.model, spec.sample.classes, config.data, data.classes));
  }
  check_batch(data, config);
}

int64_t samples_per_rank(int64_t samples, int64_t world_size) {
  return (samples + world_size - 1) / world_size;
}

int64_t steps_in_epoch(int64_t samples, const Config& config) {
  const int64_t batch = config.batch * config.accumulate;
  return (samples_per_rank(samples, world_size_of(config)) + batch - 1) / batch;
}

int64_t steps_in_run(int64_t steps_per_epoch, const Config& config) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  const int64_t steps = steps_per_epoch * std::min(config.epochs, kMost / steps_per_epoch);
  return config.steps > 0 ? std::min(steps, config.steps) : steps;
}

int64_t synthetic_samples(const Config& config) {
  constexpr int64_t kStepsAnEpoch = 100;
  return kStepsAnEpoch * config.batch * config.accumulate * world_size_of(config);
}

}  // namespace shardlens::planner
