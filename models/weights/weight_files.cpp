#include "models/weights/weight_files.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <set>
#include <stdexcept>

#include "base/shown.h"

namespace shardlens::models {

namespace fs = std::filesystem;

namespace {

/// Returns the file itself, or the files of a checkpoint that hold its weights.
std::vector<std::string> files_at(const std::string& path) {
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

}  // namespace

WeightFiles::WeightFiles(const ModelSpec& spec, const std::string& path)
    : spec_(spec), path_(path) {
  open();
  index();
  for (const ParameterSpec& parameter : spec_.parameters) check(parameter);
}

void WeightFiles::refuse(const std::string& why) const {
  throw std::invalid_argument(
      fmt::format("--init {}: {}; give a safetensors file of {}'s state dict, or a checkpoint's "
                  "folder (shardlens checkpoint import makes one from PyTorch's files)",
                  path_, shown(why), spec_.name));
}

/// Opens the files. The user can fix a damaged file, so it counts as wrong usage, not as a failure.
void WeightFiles::open() {
  try {
    for (const std::string& file : files_at(path_)) files_.emplace_back(file);
  } catch (const std::runtime_error& error) {
    refuse(error.what());
  }
  if (files_.empty()) refuse("a folder without model*.safetensors");
}

void WeightFiles::index() {
  std::set<std::string_view> known;
  for (const ParameterSpec& parameter : spec_.parameters) known.insert(parameter.name);
  for (const SafetensorsFile& file : files_) {
    for (const SafetensorsTensor& tensor : file.tensors()) {
      if (!known.contains(tensor.name)) {
        refuse(fmt::format("has a tensor {} that is not a parameter", tensor.name));
      }
      // Two tensors of one name are refused: the order of files in a folder would decide which
      // counts.
      if (!by_name_.emplace(tensor.name, &tensor).second) {
        refuse(fmt::format("has the tensor {} in two files", tensor.name));
      }
    }
  }
}

void WeightFiles::check(const ParameterSpec& parameter) const {
  const auto found = by_name_.find(parameter.name);
  if (found == by_name_.end()) refuse(fmt::format("has no tensor {}", parameter.name));
  const SafetensorsTensor& tensor = *found->second;
  if (tensor.dtype != "F32") refuse(fmt::format("{} is {}, not F32", tensor.name, tensor.dtype));
  if (tensor.shape != parameter.shape) {
    refuse(fmt::format("{} has shape [{}], not [{}]", tensor.name, fmt::join(tensor.shape, ", "),
                       fmt::join(parameter.shape, ", ")));
  }
}

}  // namespace shardlens::models
