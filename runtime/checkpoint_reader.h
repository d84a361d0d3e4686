// A published checkpoint, opened: its state, and its tensors as mapped bytes.
#pragma once

#include <filesystem>
#include <optional>
#include <string_view>
#include <vector>

#include "models/safetensors.h"
#include "runtime/checkpoint.h"

namespace shardlens::runtime {

class CheckpointReader {
 public:
  /// Of a folder that verifies (fault_of). Throws std::runtime_error where a file is damaged.
  explicit CheckpointReader(const std::filesystem::path& folder);

  const std::filesystem::path& folder() const { return folder_; }
  const Manifest& manifest() const { return manifest_; }
  /// Nothing of a model alone.
  const std::optional<CheckpointState>& state() const { return state_; }
  const std::vector<models::SafetensorsFile>& files() const { return files_; }

  /// nullptr where there is none of that name.
  const models::SafetensorsTensor* find(std::string_view name) const;

  /// Throws std::invalid_argument naming the first tensor that is missing, or has another shape
  /// or dtype, than `wanted` says: the checkpoint is of another model.
  void expect(const FileLayout& wanted) const;

 private:
  void expect(const PlacedTensor& wanted) const;

  std::filesystem::path folder_;
  Manifest manifest_;
  std::optional<CheckpointState> state_;
  std::vector<models::SafetensorsFile> files_;
};

}  // namespace shardlens::runtime
