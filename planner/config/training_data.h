// The data that a model is trained on: which data --data auto means, the number and size of
// samples, read from headers and names of files, and how many steps an epoch has.
#pragma once

#include <cstdint>
#include <string>

#include "models/data/image_folder.h"
#include "models/spec.h"
#include "planner/config/config.h"

namespace shardlens::planner {

constexpr const char* kSyntheticData = "synthetic";

/// The source of samples. `synthetic`: one random batch for all steps. `idx`: images that a rank
/// keeps on its device as bytes. `image_folder`: files, read batch by batch. `own`: the data of a
/// program that brings its own.
enum class DataKind { synthetic, idx, image_folder, own };

struct TrainingData {
  DataKind kind = DataKind::synthetic;
  int64_t train_samples = 0;
  int64_t test_samples = 0;
  int64_t height = 0;  // of idx
  int64_t width = 0;
  int64_t classes = 0;  // 0: not known from headers and names

  bool operator==(const TrainingData&) const = default;
};

/// Returns what `--data auto` means for the model: the packaged images if the model takes such
/// images, else synthetic data.
std::string data_for(const models::ModelSpec& spec);

/// Looks at `config.data` and returns the data that it has for this model. The packaged images need
/// not be installed. Throws std::invalid_argument if there is no such data, or if the model takes
/// no images.
TrainingData find_data(const models::ModelSpec& spec, const Config& config);

TrainingData data_of(const models::ImageFolder& folder);

/// Throws std::invalid_argument if the model takes no images, but `config.data` names some.
void expect_image_model(const models::ModelSpec& spec, const Config& config);

/// Throws std::invalid_argument if the model takes images of another kind, or if a rank would have
/// less than a batch of them.
void check_data(const TrainingData& data, const models::ModelSpec& spec, const Config& config);

int64_t samples_per_rank(int64_t samples, int64_t world_size);

/// Returns the steps of an epoch of `samples` samples, split over the configuration's ranks.
int64_t steps_in_epoch(int64_t samples, const Config& config);

/// Returns the steps of all epochs, or as many as --steps allows.
int64_t steps_in_run(int64_t steps_per_epoch, const Config& config);

/// Returns how many samples one epoch of synthetic data has.
int64_t synthetic_samples(const Config& config);

}  // namespace shardlens::planner
