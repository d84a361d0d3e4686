#include "runtime/checkpoint/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <span>
#include <stdexcept>

#include "base/strict_json.h"
#include "models/weights/safetensors.h"

namespace shardlens::runtime {

namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kManifestSchema = "shardlens.checkpoint/1";
constexpr const char* kStateSchema = "shardlens.checkpoint_state/1";

/// Writes the sum. A NaN becomes null in JSON.
Json json_of(const LossSum& sum) { return {{"sum", sum.sum}, {"batches", sum.batches}}; }

LossSum loss_sum_of(const Json& json) {
  const Json& sum = json.at("sum");
  return {sum.is_null() ? std::numeric_limits<double>::quiet_NaN() : sum.get<double>(),
          whole_of(json.at("batches"))};
}

Json json_of(const RankProgress& progress) {
  Json json = {{"logged_loss", json_of(progress.logged)},
               {"logged_ms", progress.logged_ms},
               {"epoch_loss", json_of(progress.epoch)}};
  if (!progress.generator.empty()) json["generator"] = progress.generator;
  return json;
}

RankProgress rank_progress_of(const Json& json) {
  return {.logged = loss_sum_of(json.at("logged_loss")),
          .logged_ms = json.at("logged_ms").get<double>(),
          .epoch = loss_sum_of(json.at("epoch_loss")),
          .generator = json.value("generator", std::string())};
}

Json or_null(const std::optional<double>& value) { return value ? Json(*value) : Json(nullptr); }

std::optional<double> optional_of(const Json& json) {
  return json.is_null() ? std::nullopt : std::optional(json.get<double>());
}

Json parsed(std::string_view text) {
  try {
    return parse_ordered_json(text, kDescription);
  } catch (const std::runtime_error& error) {
    throw std::runtime_error(fmt::format("is damaged ({})", error.what()));
  }
}

/// Parses one of our texts with `read`. Any fault in the text becomes one error.
template <class Read>
auto read_json(std::string_view text, const char* schema, const Read& read) {
  try {
    const Json json = parsed(text);
    if (schema != nullptr && json.at("schema") != schema) {
      throw std::runtime_error(fmt::format("is not of the schema {}", schema));
    }
    return read(json);
  } catch (const nlohmann::json::exception& error) {
    throw std::runtime_error(fmt::format("is damaged ({})", problem_of(error)));
  }
}

CheckpointState state_of(const Json& json) {
  CheckpointState state{.step = whole_of(json.at("step")),
                        .epoch = whole_of(json.at("epoch")),
                        .epoch_samples = whole_of(json.at("epoch_samples")),
                        .optimizer_steps = json.at("optimizer_steps").get<double>(),
                        .loss_scale = {},
                        .configuration = json.at("configuration").dump(),
                        .train_loss = optional_of(json.at("train_loss")),
                        .test_accuracy = optional_of(json.at("test_accuracy")),
                        .ranks = {}};
  if (const Json& scale = json.at("loss_scale"); !scale.is_null()) {
    state.loss_scale = {scale.at("scale").get<double>(),
                        whole_of(scale.at("steps_without_overflow"))};
  }
  for (const Json& rank : json.at("ranks")) state.ranks.push_back(rank_progress_of(rank));
  return state;
}

std::string crc_text(uint32_t crc) { return fmt::format("{:08x}", crc); }

uint32_t crc_of(const std::string& text) {
  uint32_t crc = 0;
  for (const char c : text) {
    const size_t digit = std::string_view("0123456789abcdef").find(c);
    if (digit != std::string_view::npos) crc = crc << 4 | static_cast<uint32_t>(digit);
  }
  // A checksum in any other spelling is damage.
  if (crc_text(crc) != text) throw std::runtime_error("is damaged (a checksum)");
  return crc;
}

/// Holds tensors of one kind, in the order in which they fill files.
struct Kind {
  std::string name;  // "model"
  std::vector<PlacedTensor*> tensors;
};

int64_t bytes_of(const PlacedTensor& tensor) { return tensor.numel() * kElementBytes; }

/// Returns the end of the tensors, from `first` on, that fit into one file.
size_t files_end(const std::vector<PlacedTensor*>& tensors, size_t first, int64_t most_bytes) {
  int64_t bytes = bytes_of(*tensors[first]);
  size_t end = first + 1;
  while (end < tensors.size() && bytes + bytes_of(*tensors[end]) <= most_bytes) {
    bytes += bytes_of(*tensors[end++]);
  }
  return end;
}

/// Adds one file with these tensors, and records where each tensor is.
void add_file(FileLayout& layout, std::span<PlacedTensor* const> placed) {
  std::vector<models::SafetensorsTensor> tensors;
  for (const PlacedTensor* tensor : placed)
    tensors.push_back({tensor->name, "F32", tensor->shape, {}});
  models::SafetensorsLayout file = models::lay_out_safetensors(tensors, {{"format", "pt"}});
  for (size_t i = 0; i < placed.size(); ++i) {
    placed[i]->file = static_cast<int>(layout.files.size());
    placed[i]->offset_bytes = static_cast<int64_t>(file.offsets_bytes[i]);
  }
  layout.files.push_back(
      {.name = {}, .header = std::move(file.header), .bytes = static_cast<int64_t>(file.bytes)});
}

void add_files(FileLayout& layout, const Kind& kind, int64_t most_file_bytes) {
  const size_t first_file = layout.files.size();
  for (size_t first = 0; first < kind.tensors.size();) {
    const size_t end = files_end(kind.tensors, first, most_file_bytes);
    add_file(layout, std::span(kind.tensors).subspan(first, end - first));
    first = end;
  }
  const size_t count = layout.files.size() - first_file;
  for (size_t i = 0; i < count; ++i) {
    layout.files[first_file + i].name =
        fmt::format("{}-{:05}-of-{:05}.safetensors", kind.name, i + 1, count);
  }
}

FileLayout with_weights(const models::ModelSpec& spec) {
  FileLayout layout;
  for (const models::ParameterSpec& parameter : spec.parameters) {
    layout.parameters.push_back({{.name = parameter.name, .shape = parameter.shape}});
  }
  return layout;
}

}  // namespace

std::string to_json(const RankProgress& progress) { return json_of(progress).dump(); }

RankProgress parse_rank_progress(std::string_view text) {
  return read_json(text, nullptr, rank_progress_of);
}

std::string to_json(const CheckpointState& state) {
  Json json = {{"schema", kStateSchema},
               {"step", state.step},
               {"epoch", state.epoch},
               {"epoch_samples", state.epoch_samples},
               {"optimizer_steps", state.optimizer_steps},
               {"loss_scale", nullptr},
               {"configuration", Json::parse(state.configuration)},
               {"train_loss", or_null(state.train_loss)},
               {"test_accuracy", or_null(state.test_accuracy)},
               {"world_size", state.ranks.size()},
               {"ranks", Json::array()}};
  if (state.loss_scale) {
    json["loss_scale"] = {{"scale", state.loss_scale->scale},
                          {"steps_without_overflow", state.loss_scale->steps_without_overflow}};
  }
  for (const RankProgress& rank : state.ranks) json["ranks"].push_back(json_of(rank));
  return json.dump(2) + "\n";
}

CheckpointState parse_state(std::string_view text) {
  return read_json(text, kStateSchema, state_of);
}

int64_t PlacedTensor::numel() const {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

int64_t FileLayout::bytes() const {
  int64_t bytes = 0;
  for (const PlannedFile& file : files) bytes += file.bytes;
  return bytes;
}

FileLayout checkpoint_layout(const models::ModelSpec& spec,
                             const std::vector<std::vector<std::string>>& moments,
                             int64_t most_file_bytes) {
  FileLayout layout = with_weights(spec);
  for (size_t i = 0; i < moments.size(); ++i) {
    const models::ParameterSpec& parameter = spec.parameters[i];
    for (const std::string& moment : moments[i]) {
      layout.parameters[i].push_back(
          {.name = parameter.name + "." + moment, .shape = parameter.shape});
    }
  }
  Kind model{.name = "model", .tensors = {}}, optimizer{.name = "optimizer", .tensors = {}};
  for (std::vector<PlacedTensor>& tensors : layout.parameters) {
    model.tensors.push_back(&tensors.front());
    for (size_t i = 1; i < tensors.size(); ++i) optimizer.tensors.push_back(&tensors[i]);
  }
  add_files(layout, model, most_file_bytes);
  add_files(layout, optimizer, most_file_bytes);
  return layout;
}

FileLayout model_layout(const models::ModelSpec& spec) {
  FileLayout layout = with_weights(spec);
  std::vector<PlacedTensor*> all;
  for (std::vector<PlacedTensor>& tensors : layout.parameters) all.push_back(&tensors.front());
  add_file(layout, all);
  layout.files.front().name = "model.safetensors";
  return layout;
}

std::string weight_index(const FileLayout& layout) {
  Json weights = Json::object();
  int64_t bytes = 0;
  for (const std::vector<PlacedTensor>& tensors : layout.parameters) {
    const PlacedTensor& weight = tensors.front();
    append_member(weights, weight.name, layout.files[static_cast<size_t>(weight.file)].name);
    bytes += bytes_of(weight);
  }
  const Json json = {{"metadata", {{"total_size", bytes}}}, {"weight_map", weights}};
  return json.dump(2) + "\n";
}

bool holds_tensors(const ManifestFile& file) { return file.name.ends_with(".safetensors"); }

Problem checksum_fault(const ManifestFile& written, uint32_t found) {
  if (found == written.crc32c) return std::nullopt;
  return fmt::format("{} is damaged: its checksum is {:08x}, not {:08x}", written.name, found,
                     written.crc32c);
}

std::string to_json(const Manifest& manifest) {
  Json json = {{"schema", kManifestSchema}, {"step", manifest.step}, {"files", Json::array()}};
  for (const ManifestFile& file : manifest.files) {
    json["files"].push_back(
        {{"name", file.name}, {"bytes", file.bytes}, {"crc32c", crc_text(file.crc32c)}});
  }
  return json.dump(2) + "\n";
}

Manifest parse_manifest(std::string_view text) {
  return read_json(text, kManifestSchema, [](const Json& json) {
    Manifest manifest{.step = whole_of(json.at("step")), .files = {}};
    for (const Json& file : json.at("files")) {
      manifest.files.push_back({file.at("name").get<std::string>(), whole_of(file.at("bytes")),
                                crc_of(file.at("crc32c").get<std::string>())});
    }
    return manifest;
  });
}

}  // namespace shardlens::runtime
