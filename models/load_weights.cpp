#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <stdexcept>

#include "input/shown.h"
#include "models/model.h"
#include "models/safetensors.h"

namespace shardlens::models {

namespace {

namespace fs = std::filesystem;

[[noreturn]] void refuse(const std::string& path, const ModelSpec& spec, const std::string& why) {
  throw std::invalid_argument(
      fmt::format("--init {}: {}; give a safetensors file of {}'s state dict, or a checkpoint's "
                  "folder (shardlens checkpoint import makes one of PyTorch's files)",
                  path, input::shown(why), spec.name));
}

/// One file, or those of a checkpoint that the weights are in.
class Weights {
 public:
  /// A damaged file is the user's to mend here, so it is no failure but wrong use.
  Weights(const ModelSpec& spec, const std::string& path) {
    try {
      for (const std::string& file : files_at(path)) files_.emplace_back(file);
    } catch (const std::runtime_error& error) {
      refuse(path, spec, error.what());
    }
    if (files_.empty()) refuse(path, spec, "a folder without model*.safetensors");
  }

  /// nullptr where there is none of that name.
  const SafetensorsTensor* find(const std::string& name) const {
    for (const SafetensorsFile& file : files_) {
      if (const SafetensorsTensor* const tensor = file.find(name)) return tensor;
    }
    return nullptr;
  }
  const std::vector<SafetensorsFile>& files() const { return files_; }

 private:
  static std::vector<std::string> files_at(const std::string& path) {
    if (!fs::is_directory(path)) return {path};
    std::vector<std::string> files;
    for (const fs::directory_entry& entry : fs::directory_iterator(path)) {
      const std::string name = entry.path().filename().string();
      if (name.starts_with("model") && name.ends_with(".safetensors")) {
        files.push_back(entry.path().string());
      }
    }
    return files;
  }

  std::vector<SafetensorsFile> files_;
};

void check(const ParameterSpec& parameter, const SafetensorsTensor* tensor, const std::string& path,
           const ModelSpec& spec) {
  if (tensor == nullptr) refuse(path, spec, fmt::format("has no tensor {}", parameter.name));
  if (tensor->dtype != "F32") {
    refuse(path, spec, fmt::format("{} is {}, not F32", parameter.name, tensor->dtype));
  }
  if (tensor->shape != parameter.shape) {
    refuse(path, spec,
           fmt::format("{} has shape [{}], not [{}]", parameter.name,
                       fmt::join(tensor->shape, ", "), fmt::join(parameter.shape, ", ")));
  }
}

void check_no_other(const ModelSpec& spec, const SafetensorsFile& file, const std::string& path) {
  for (const SafetensorsTensor& tensor : file.tensors()) {
    const bool known = std::any_of(spec.parameters.begin(), spec.parameters.end(),
                                   [&](const ParameterSpec& p) { return p.name == tensor.name; });
    if (!known)
      refuse(path, spec, fmt::format("has a tensor {} that is no parameter", tensor.name));
  }
}

/// Opened, and found to fit the model.
Weights open_weights(const ModelSpec& spec, const std::string& path) {
  Weights weights(spec, path);
  for (const ParameterSpec& p : spec.parameters) check(p, weights.find(p.name), path, spec);
  for (const SafetensorsFile& file : weights.files()) check_no_other(spec, file, path);
  return weights;
}

}  // namespace

void check_weights(const ModelSpec& spec, const std::string& path) { open_weights(spec, path); }

void load_parameters(const ModelSpec& spec, const std::string& path, const TakeParameter& take) {
  const Weights weights = open_weights(spec, path);
  for (size_t i = 0; i < spec.parameters.size(); ++i) {
    at::Tensor value = at::empty(spec.parameters[i].shape, at::kFloat);
    // The file aligns nothing, so the bytes are copied rather than viewed.
    const auto data = weights.find(spec.parameters[i].name)->data;
    std::memcpy(value.data_ptr(), data.data(), data.size());
    take(static_cast<int>(i), value);
  }
}

}  // namespace shardlens::models
