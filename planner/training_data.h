// What a model is trained on: which data where nobody says, how many samples and of which size, as
// the headers and names of files tell, and how many steps an epoch of them has.
#pragma once

#include <cstdint>
#include <string>

#include "models/spec.h"
#include "planner/image_folder.h"
#include "planner/strategy.h"

namespace shardlens::planner {

constexpr const char* kSyntheticData = "synthetic";

/// `synthetic`: one random batch for all steps. `idx`: images that a rank keeps on its device as
/// bytes. `image_folder`: files, read batch by batch. `own`: a program's.
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

/// The packaged images where the model takes such images, noise where it does not: what
/// `--data auto` means.
std::string data_for(const models::ModelSpec& spec);

/// What `config.data` has for this model. The packaged images need not be installed. Throws
/// std::invalid_argument where there are none, or where the model takes no images.
TrainingData find_data(const models::ModelSpec& spec, const Config& config);

TrainingData data_of(const ImageFolder& folder);

/// Throws std::invalid_argument where the model takes no images, but `config.data` names some.
void expect_image_model(const models::ModelSpec& spec, const Config& config);

/// Throws std::invalid_argument where the model takes images of another kind, or where a rank would
/// have less than a batch of them.
void check_data(const TrainingData& data, const models::ModelSpec& spec, const Config& config);

int64_t samples_per_rank(int64_t samples, int64_t world_size);

/// Of so many samples, split over the ranks of a configuration.
int64_t steps_in_epoch(int64_t samples, const Config& config);

/// Of all epochs, or as many as --steps allows.
int64_t steps_in_run(int64_t steps_per_epoch, const Config& config);

/// Of synthetic data, one epoch's.
int64_t synthetic_samples(const Config& config);

}  // namespace shardlens::planner
