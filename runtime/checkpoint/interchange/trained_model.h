// Finds a model with its optimizer's state in what a program has saved, whatever the dicts around
// them are called: get_state_dict's {"model": ..., "optim": ...}, a plain state dict, or others.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "models/spec.h"
#include "runtime/checkpoint/checkpoint_part.h"
#include "runtime/checkpoint/interchange/saved_state.h"

namespace shardlens::runtime {

/// Holds a model and its optimizer's state. It points into the saved state.
struct TrainedModel {
  struct Parameter {
    const SavedTensor* weight = nullptr;
    std::map<std::string, const SavedTensor*> moments;  // by PyTorch's name: "exp_avg"
  };
  std::map<std::string, Parameter> parameters;  // by name in the model's state dict
  std::vector<std::string> order;               // their names, as they were saved
  std::optional<int64_t> steps;                 // steps that the optimizer has taken
  std::map<std::string, double> settings;       // of its first group: "lr", "eps", ...
};

/// Finds the one model in `state`. `source` is for messages. Throws std::runtime_error if there is
/// no model, or several.
TrainedModel find_model(const SavedState& state, const std::filesystem::path& source);

/// True if a dtype, in safetensors' words, is an integer or boolean type. No weight has such a
/// dtype.
bool is_integer(std::string_view dtype);

/// Collects values in the form of our files: fp32, whatever the saved dtype is, with their offsets
/// in the files. Pieces in fp32 are not copied; `copies_` keeps the others.
class Fp32Ranges {
 public:
  /// Adds a tensor that is placed in a file. Throws std::runtime_error if the pieces leave out a
  /// part of the tensor or overlap, or are not floating-point numbers.
  void add(const PlacedTensor& placed, const SavedTensor& tensor);

  const std::vector<FileRange>& ranges() const { return ranges_; }

 private:
  void add_rows(const PlacedTensor& placed, const SavedTensor& tensor);
  void add_copy(const PlacedTensor& placed, const SavedTensor& tensor);

  std::vector<FileRange> ranges_;
  std::vector<std::vector<float>> copies_;
};

}  // namespace shardlens::runtime
