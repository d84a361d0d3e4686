// Classifies one image with a run's trained model, on one rank or on several that each keep a part
// of the weights. It only runs the schedule of an evaluation pass.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "runtime/infer/picture.h"

namespace shardlens::runtime {

/// Says which of a run's weights to read.
enum class WeightsSource {
  model,   // RUN/model, else the newest checkpoint
  latest,  // the newest checkpoint
  best,    // the checkpoint of the highest test accuracy
};

struct InferOptions {
  std::filesystem::path run;
  std::optional<int64_t> index;  // number of a test image
  std::string image;             // an image file instead
  WeightsSource from = WeightsSource::model;
  int64_t workers = 1;
  std::string device = "auto";
  double timeout_s = 60;
};

struct Guess {
  int64_t label = 0;
  std::string name;
  double probability = 0;
};

struct Inference {
  std::filesystem::path weights;         // the folder they were read from, every byte as written
  std::vector<std::string> passed_over;  // damaged folders that would have come first, a line each
  GreyPicture picture;
  std::optional<Guess> truth;  // of a test image, with the model's probability for it
  std::vector<Guess> guesses;  // of all classes, the likeliest first
};

/// Classifies an image. Ranks are threads of this process. Damaged weights are passed over and
/// reported. Throws std::invalid_argument for what the user must fix, std::runtime_error if a rank
/// fails.
Inference infer(const InferOptions& options);

}  // namespace shardlens::runtime
