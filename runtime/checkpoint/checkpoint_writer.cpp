#include "runtime/checkpoint/checkpoint_writer.h"

#include <fmt/format.h>

#include <fstream>
#include <optional>
#include <stdexcept>
#include <utility>

#include "base/checksum/crc32c.h"
#include "base/durable_files.h"
#include "models/weights/torch_file.h"
#include "runtime/checkpoint/measure_file.h"

namespace shardlens::runtime {

namespace fs = std::filesystem;

namespace {

constexpr const char* kTorchFile = "full-model.pt";

ManifestFile add_text(const fs::path& folder, const std::string& name, const std::string& text) {
  write_file(folder / name, text);
  return {.name = name,
          .bytes = static_cast<int64_t>(text.size()),
          .crc32c = crc32c(std::as_bytes(std::span(text)))};
}

/// Writes the model as torch.save does. Returns nothing if the model is too large for one archive.
std::optional<ManifestFile> add_torch_file(const fs::path& folder, const FileLayout& layout) {
  constexpr int64_t kMostBytes = int64_t{models::kMostTorchFileBytes} / 2;  // far from any limit
  if (layout.bytes() > kMostBytes) return std::nullopt;
  const models::SafetensorsFile model((folder / layout.files.front().name).string());
  const fs::path path = folder / kTorchFile;
  std::ofstream out(path, std::ios::binary);
  models::write_torch_file(out, model.tensors());
  out.close();
  if (!out) fail_to_write(path);
  SharedFile(path).sync();
  return measure_file(path);
}

/// Returns the mean loss of the batches so far, or nothing if a rank had no batch.
std::optional<double> mean_epoch_loss(const std::vector<RankProgress>& ranks) {
  double sum = 0;
  for (const RankProgress& rank : ranks) {
    if (rank.epoch.batches == 0) return std::nullopt;
    sum += rank.epoch.sum / static_cast<double>(rank.epoch.batches);
  }
  return sum / static_cast<double>(ranks.size());
}

void write_own_part(const CheckpointWriterOptions& options, const FileLayout& layout,
                    const fs::path& folder, const CheckpointShare& share) {
  write_part({.layout = layout,
              .folder = folder,
              .rank = options.rank,
              .ranges = share.ranges,
              .progress = share.progress});
}

}  // namespace

void remove_unfinished_models(const fs::path& folder) {
  const std::string model = folder.filename().string();
  remove_unfinished(folder.parent_path(), [&](std::string_view name) { return name == model; });
}

void write_checkpoint(const CheckpointWriterOptions& options, const FileLayout& layout,
                      const CheckpointShare& share, CheckpointState state,
                      const std::function<bool()>& is_stopped) {
  options.store.fence().check();
  const fs::path folder = options.store.unfinished_folder(state.step);
  write_own_part(options, layout, folder, share);
  if (options.rank != 0) return;
  CollectedParts parts = collect_parts(layout, folder, options.world_size,
                                       fmt::format("checkpoint of step {}", state.step),
                                       {.deadline = options.deadline, .is_stopped = is_stopped});
  state.ranks = std::move(parts.ranks);
  if (!state.train_loss) state.train_loss = mean_epoch_loss(state.ranks);
  Manifest manifest{.step = state.step, .files = std::move(parts.files)};
  manifest.files.push_back(add_text(folder, "model.safetensors.index.json", weight_index(layout)));
  manifest.files.push_back(add_text(folder, "state.json", to_json(state)));
  write_file(folder / "manifest.json", to_json(manifest));
  options.store.publish(state.step);
  options.store.prune(options.wanted, state.step);
}

void write_model(const CheckpointWriterOptions& options, const FileLayout& layout,
                 const CheckpointShare& share, const fs::path& folder, int64_t step,
                 const std::function<bool()>& is_stopped) {
  const Fence& fence = options.store.fence();
  fence.check();
  const fs::path unfinished =
      folder.parent_path() / (kTemporary + folder.filename().string() + fence.suffix());
  write_own_part(options, layout, unfinished, share);
  if (options.rank != 0) return;
  CollectedParts parts = collect_parts(layout, unfinished, options.world_size, "model",
                                       {.deadline = options.deadline, .is_stopped = is_stopped});
  Manifest manifest{.step = step, .files = std::move(parts.files)};
  if (const auto file = add_torch_file(unfinished, layout)) manifest.files.push_back(*file);
  write_file(unfinished / "manifest.json", to_json(manifest));
  fence.check();
  if (!remove_written(folder)) {
    throw std::runtime_error(
        fmt::format("{}: holds files not written by this run; move them away, then restart the run",
                    folder.string()));
  }
  rename_durably(unfinished, folder);
}

}  // namespace shardlens::runtime
