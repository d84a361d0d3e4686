// Opens files with start weights of a model and checks that they fit it, for --init and `infer`.
// Needs no LibTorch. Private to models/; load_weights.cpp makes tensors of them.
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "models/spec.h"
#include "models/weights/safetensors.h"

namespace shardlens::models {

class WeightFiles {
 public:
  /// Opens a safetensors file, or those in a checkpoint's folder. Throws std::invalid_argument if
  /// they are damaged, or do not hold the model's parameters, each once, in F32. `spec` must
  /// outlive it.
  WeightFiles(const ModelSpec& spec, const std::string& path);

  /// Returns the bytes of spec.parameters[parameter]: row-major, aligned to nothing.
  std::span<const std::byte> data_of(size_t parameter) const {
    return by_name_.at(spec_.parameters[parameter].name)->data;
  }

 private:
  [[noreturn]] void refuse(const std::string& why) const;
  void open();
  void index();
  void check(const ParameterSpec& parameter) const;

  const ModelSpec& spec_;
  std::string path_;
  std::vector<SafetensorsFile> files_;
  std::map<std::string_view, const SafetensorsTensor*> by_name_;  // of all files
};

}  // namespace shardlens::models
