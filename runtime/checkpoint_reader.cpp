#include "runtime/checkpoint_reader.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <stdexcept>

#include "runtime/durable_files.h"

namespace shardlens::runtime {

namespace fs = std::filesystem;

namespace {

[[noreturn]] void refuse(const fs::path& folder, const std::string& why) {
  throw std::invalid_argument(
      fmt::format("{}: a checkpoint of another model: {}; give another --name, or --fresh to start "
                  "over",
                  folder.string(), why));
}

}  // namespace

CheckpointReader::CheckpointReader(const fs::path& folder)
    : folder_(folder), manifest_(parse_manifest(read_whole_file(folder / "manifest.json"))) {
  for (const ManifestFile& file : manifest_.files) {
    if (file.name.ends_with(".safetensors")) files_.emplace_back((folder / file.name).string());
    if (file.name == "state.json") state_ = parse_state(read_whole_file(folder / file.name));
  }
}

const models::SafetensorsTensor* CheckpointReader::find(std::string_view name) const {
  for (const models::SafetensorsFile& file : files_) {
    if (const models::SafetensorsTensor* tensor = file.find(name)) return tensor;
  }
  return nullptr;
}

void CheckpointReader::expect(const PlacedTensor& wanted) const {
  const models::SafetensorsTensor* const found = find(wanted.name);
  if (found == nullptr) refuse(folder_, fmt::format("it has no tensor {}", wanted.name));
  if (found->shape == wanted.shape && found->dtype == "F32") return;
  refuse(folder_, fmt::format("{} is {} [{}], not F32 [{}]", wanted.name, found->dtype,
                              fmt::join(found->shape, ", "), fmt::join(wanted.shape, ", ")));
}

void CheckpointReader::expect(const FileLayout& wanted) const {
  size_t count = 0;
  for (const std::vector<PlacedTensor>& tensors : wanted.parameters) {
    for (const PlacedTensor& tensor : tensors) expect(tensor);
    count += tensors.size();
  }
  size_t found = 0;
  for (const models::SafetensorsFile& file : files_) found += file.tensors().size();
  if (found != count) refuse(folder_, fmt::format("it has {} tensors, not {}", found, count));
}

}  // namespace shardlens::runtime
