#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "models/model.h"
#include "models/safetensors.h"

namespace shardlens::models {

namespace {

[[noreturn]] void refuse(const std::string& path, const ModelSpec& spec, const std::string& why) {
  throw std::invalid_argument(fmt::format(
      "--init {}: {}; give a safetensors file of {}'s state dict", path, why, spec.name));
}

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

/// A damaged file is the user's to mend here, so it is no failure but wrong use.
SafetensorsFile open_file(const ModelSpec& spec, const std::string& path) {
  try {
    return SafetensorsFile(path);
  } catch (const std::runtime_error& error) {
    refuse(path, spec, error.what());
  }
}

/// Opened, and found to fit the model.
SafetensorsFile open_weights(const ModelSpec& spec, const std::string& path) {
  SafetensorsFile file = open_file(spec, path);
  for (const ParameterSpec& p : spec.parameters) check(p, file.find(p.name), path, spec);
  check_no_other(spec, file, path);
  return file;
}

}  // namespace

void check_weights(const ModelSpec& spec, const std::string& path) { open_weights(spec, path); }

void load_parameters(const ModelSpec& spec, const std::string& path, const TakeParameter& take) {
  const SafetensorsFile file = open_weights(spec, path);
  for (size_t i = 0; i < spec.parameters.size(); ++i) {
    at::Tensor value = at::empty(spec.parameters[i].shape, at::kFloat);
    // The file aligns nothing, so the bytes are copied rather than viewed.
    const auto data = file.find(spec.parameters[i].name)->data;
    std::memcpy(value.data_ptr(), data.data(), data.size());
    take(static_cast<int>(i), value);
  }
}

}  // namespace shardlens::models
