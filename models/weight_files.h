// Start weights of a model as files, found to fit it: what --init and `infer` read. Nothing here
// knows LibTorch. Private to models/, beside what load_weights.cpp makes of it.
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "models/safetensors.h"
#include "models/spec.h"

namespace shardlens::models {

class WeightFiles {
 public:
  /// `path`: a safetensors file, or a checkpoint's folder. Throws std::invalid_argument where they
  /// are damaged, or are not the model's parameters, each once, in F32. `spec` must outlive it.
  WeightFiles(const ModelSpec& spec, const std::string& path);

  /// The bytes of spec.parameters[parameter]: row-major, aligned to nothing.
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
