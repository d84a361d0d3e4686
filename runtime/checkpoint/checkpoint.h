// Defines a checkpoint as plain data. checkpoint_store.h says where checkpoints are kept.
//
//   step-00000938/ model-00001-of-00001.safetensors      weights, F32, by PyTorch's names
//                  optimizer-00001-of-00001.safetensors  moments: "head.weight.exp_avg", ...
//                  model.safetensors.index.json          which file has which weight
//                  state.json                            where training stood
//                  manifest.json                         size and CRC-32C of all others; made last
//
// [Note: files do not depend on ranks]
// Tensors are complete, and their places depend only on the model: a file is laid out before
// anything is written, and every rank writes the ranges that it holds where they belong. So ranks
// send each other nothing, all write at once, and the same state gives the same bytes on any number
// of ranks. If several ranks hold a range, each writes a part of that range.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/fault.h"
#include "models/spec.h"

namespace shardlens::runtime {

/// Losses that were added up but not reported yet.
struct LossSum {
  double sum = 0;
  int64_t batches = 0;

  bool operator==(const LossSum&) const = default;
};

/// Holds what one rank knows and the others do not.
struct RankProgress {
  LossSum logged{};         // since the last line of metrics
  double logged_ms = 0;     // of these steps
  LossSum epoch{};          // of the epoch so far
  std::string generator{};  // LibTorch's random state in hex; empty: nothing was drawn

  bool operator==(const RankProgress&) const = default;
};

/// Holds the state of a loss scale that adapts itself.
struct LossScaleState {
  double scale = 1;
  int64_t steps_without_overflow = 0;

  bool operator==(const LossScaleState&) const = default;
};

/// Holds where training stood: the contents of state.json.
struct CheckpointState {
  int64_t step = 0;            // steps done
  int64_t epoch = 0;           // whole epochs done
  int64_t epoch_samples = 0;   // samples of the next epoch that all ranks have taken
  double optimizer_steps = 0;  // fewer than steps if gradients overflowed
  std::optional<LossScaleState> loss_scale{};
  std::string configuration{};            // planner::run_identity of the run
  std::optional<double> train_loss{};     // of the last whole epoch, or of this one so far
  std::optional<double> test_accuracy{};  // after the last whole epoch
  std::vector<RankProgress> ranks{};

  bool operator==(const CheckpointState&) const = default;
};

std::string to_json(const CheckpointState& state);
std::string to_json(const RankProgress& progress);
// Both throw std::runtime_error that says what is wrong with the text.
CheckpointState parse_state(std::string_view text);
RankProgress parse_rank_progress(std::string_view text);

constexpr int64_t kElementBytes = 4;  // of every tensor of a checkpoint: F32

/// Says where the data of one tensor begin, and in which file.
struct PlacedTensor {
  std::string name;
  std::vector<int64_t> shape;
  int file = 0;  // index into FileLayout::files
  int64_t offset_bytes = 0;

  int64_t numel() const;
};

struct PlannedFile {
  std::string name;
  std::string header;  // what the file begins with
  int64_t bytes = 0;
};

/// Describes Safetensors files that are written in pieces.
struct FileLayout {
  std::vector<PlannedFile> files;
  /// Indexed by parameter; each entry holds the parameter's weight, then its moments if it has any.
  std::vector<std::vector<PlacedTensor>> parameters;

  int64_t bytes() const;
};

/// Returns the files of a checkpoint. `moments` holds, by parameter, PyTorch's names of the moments
/// that the optimizer keeps. A file exceeds `most_file_bytes` only if a single tensor does.
FileLayout checkpoint_layout(const models::ModelSpec& spec,
                             const std::vector<std::vector<std::string>>& moments,
                             int64_t most_file_bytes = int64_t{4} << 30);

/// Returns the layout of only the model, in one file: model.safetensors.
FileLayout model_layout(const models::ModelSpec& spec);

/// Returns the text of model.safetensors.index.json, which says which file has which weight.
std::string weight_index(const FileLayout& layout);

struct ManifestFile {
  std::string name;
  int64_t bytes = 0;
  uint32_t crc32c = 0;

  bool operator==(const ManifestFile&) const = default;
};

/// True if the file holds tensors. All other files of a checkpoint are small.
bool holds_tensors(const ManifestFile& file);

/// Returns the fault of a file whose checksum is now `found`, or nothing if the file is as it was
/// written.
Problem checksum_fault(const ManifestFile& written, uint32_t found);

struct Manifest {
  int64_t step = 0;
  std::vector<ManifestFile> files;

  bool operator==(const Manifest&) const = default;
};

std::string to_json(const Manifest& manifest);
/// Throws std::runtime_error that says what is wrong with the text.
Manifest parse_manifest(std::string_view text);

}  // namespace shardlens::runtime
