// A model with its optimizer's state, found in what a program has saved, whatever it called the
// dicts around them: get_state_dict's {"model": ..., "optim": ...}, a plain state dict, or others.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "models/spec.h"
#include "runtime/checkpoint_part.h"
#include "runtime/interchange/saved_state.h"

namespace shardlens::runtime {

/// Points into the state that it was found in.
struct TrainedModel {
  struct Parameter {
    const SavedTensor* weight = nullptr;
    std::map<std::string, const SavedTensor*> moments;  // by PyTorch's name: "exp_avg"
  };
  std::map<std::string, Parameter> parameters;  // by name in the model's state dict
  std::vector<std::string> order;               // their names, as they were saved
  std::optional<int64_t> steps;                 // that the optimizer has taken
  std::map<std::string, double> settings;       // of its first group: "lr", "eps", ...
};

/// `source` is for messages. Throws std::runtime_error where there is no model, or several.
TrainedModel find_model(const SavedState& state, const std::filesystem::path& source);

/// Whether a dtype, in safetensors' words, is of integers or truth values: no weight's.
bool is_integer(std::string_view dtype);

/// Values as our files keep them, where they belong: fp32, whatever the saved dtype is. Pieces that
/// are so already are not copied; `copies` keeps the others.
class Fp32Ranges {
 public:
  /// Of a tensor that is placed in a file. Throws std::runtime_error where the pieces leave out a
  /// part of the tensor or have one twice, or are no floating-point numbers.
  void add(const PlacedTensor& placed, const SavedTensor& tensor);

  const std::vector<FileRange>& ranges() const { return ranges_; }

 private:
  void add_rows(const PlacedTensor& placed, const SavedTensor& tensor);
  void add_copy(const PlacedTensor& placed, const SavedTensor& tensor);

  std::vector<FileRange> ranges_;
  std::vector<std::vector<float>> copies_;
};

}  // namespace shardlens::runtime
