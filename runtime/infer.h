// Classifies one image with a run's trained model, on one rank or on several that each keep a part
// of the weights: the schedule of an evaluation pass, and nothing of training.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "runtime/picture.h"

namespace shardlens::runtime {

/// Which of a run's weights.
enum class WeightsFrom {
  model,   // RUN/model, else the newest checkpoint
  latest,  // the newest checkpoint
  best,    // the checkpoint of the highest test accuracy
};

struct InferOptions {
  std::filesystem::path run;
  std::optional<int64_t> index;  // of a test image
  std::string image;             // a file instead
  WeightsFrom from = WeightsFrom::model;
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
  std::filesystem::path weights;  // the folder that they were read from, every byte as written
  std::vector<std::string> passed_over;  // that would have come first but is damaged, a line each
  Picture picture;
  std::optional<Guess> truth;  // of a test image; its probability is the model's
  std::vector<Guess> guesses;  // of all classes, the likeliest first
};

/// Ranks are threads of this process. What is damaged is passed over, and told. Throws
/// std::invalid_argument for what the user must mend, std::runtime_error where a rank fails.
Inference infer(const InferOptions& options);

}  // namespace shardlens::runtime
