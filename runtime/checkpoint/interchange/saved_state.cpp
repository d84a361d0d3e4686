#include "runtime/checkpoint/interchange/saved_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "base/input_file.h"
#include "base/shown.h"
#include "models/weights/safetensors.h"
#include "runtime/checkpoint/interchange/dcp_reader.h"
#include "runtime/checkpoint/interchange/torch_archive.h"
#include "runtime/checkpoint/verification.h"

namespace shardlens::runtime {

namespace fs = std::filesystem;

namespace {

constexpr const char* kSafetensors = ".safetensors";

void add_safetensors(SavedState& state, const fs::path& path) {
  const auto file = std::make_shared<models::SafetensorsFile>(path.string());
  for (const models::SafetensorsTensor& tensor : file->tensors()) {
    state.tensors.push_back(
        {.path = {tensor.name},
         .dtype = tensor.dtype,
         .shape = tensor.shape,
         .pieces = {{std::vector<int64_t>(tensor.shape.size(), 0), tensor.shape, tensor.data}}});
  }
  state.memory.push_back(file);
}

SavedState read_torch_file(const fs::path& path) {
  SavedState state;
  const auto file = std::make_shared<MappedFile>(path);
  if (file->problem()) {
    throw std::invalid_argument(fmt::format("{}: cannot be read ({}); give an existing file",
                                            shown(path.string()), *file->problem()));
  }
  state.memory.push_back(file);
  add_archive(state, TorchArchive(file->bytes()));
  return state;
}

/// Returns a model's files, sorted by name, without our files of optimizer state.
std::vector<fs::path> safetensors_in(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    if (holds_weights(entry.path().filename().string())) files.push_back(entry.path());
  }
  std::ranges::sort(files);
  return files;
}

SavedState read_folder(const fs::path& folder) {
  if (is_dcp_folder(folder)) return read_dcp(folder);
  const std::vector<fs::path> files = safetensors_in(folder);
  if (files.empty()) {
    throw std::invalid_argument(
        fmt::format("{}: holds neither .metadata nor safetensors files; give a folder that "
                    "torch.distributed.checkpoint has saved, or a file",
                    folder.string()));
  }
  SavedState state;
  for (const fs::path& file : files) add_safetensors(state, file);
  return state;
}

}  // namespace

SavedState read_saved_state(const fs::path& source) {
  if (!fs::exists(source)) {
    throw std::invalid_argument(
        fmt::format("{}: does not exist; give a DCP folder, a .pt file or a safetensors file",
                    source.string()));
  }
  if (source.extension() == kSafetensors) {
    SavedState state;
    add_safetensors(state, source);
    return state;
  }
  try {
    return fs::is_directory(source) ? read_folder(source) : read_torch_file(source);
  } catch (const std::runtime_error& error) {
    throw std::runtime_error(fmt::format("{}: {}", source.string(), error.what()));
  }
}

}  // namespace shardlens::runtime
