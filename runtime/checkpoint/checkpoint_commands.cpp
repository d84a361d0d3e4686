#include "runtime/checkpoint/checkpoint_commands.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "base/shown.h"
#include "base/strict_json.h"
#include "base/units.h"
#include "runtime/checkpoint/checkpoint_reader.h"
#include "runtime/checkpoint/checkpoint_store.h"
#include "runtime/checkpoint/interchange/export_checkpoint.h"
#include "runtime/checkpoint/interchange/import_checkpoint.h"
#include "runtime/checkpoint/run_directory.h"

namespace shardlens::runtime {

namespace fs = std::filesystem;

namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kUsage =
    "usage: shardlens checkpoint verify DIR             read every byte; exit 1 if any is damaged\n"
    "       shardlens checkpoint inspect DIR [--json]   show what a checkpoint holds\n"
    "       shardlens checkpoint export DIR TARGET ...  write files that PyTorch reads; TARGETs:\n"
    "           --dcp FOLDER        for torch.distributed.checkpoint.load, with the optimizer\n"
    "           --prefix KEY        key of the state in that folder (app); empty: none\n"
    "           --safetensors FILE  the model only\n"
    "           --pt FILE           the model only, for torch.load(weights_only=True)\n"
    "       shardlens checkpoint import SOURCE --out FOLDER\n"
    "                                                   make a checkpoint for train --init\n"
    "       shardlens checkpoint import SOURCE --name RUN [flags of train]\n"
    "                                                   make a run that train resumes with the\n"
    "                                                   same flags\n"
    "\nDIR is a checkpoint, a run (its newest whole checkpoint), its checkpoints/ or its model/.\n"
    "SOURCE is a folder of torch.distributed.checkpoint, a .pt file or a safetensors file.\n";

bool has_manifest(const fs::path& folder) { return fs::exists(folder / "manifest.json"); }

/// Returns the folders at or under `folder` that are, or claim to be, checkpoints; oldest first.
std::vector<fs::path> candidates(const fs::path& folder) {
  if (has_manifest(folder) || step_of(folder)) return {folder};
  std::vector<fs::path> found;
  const fs::path checkpoints = folder / kCheckpointsFolder;
  for (const auto& one : CheckpointStore(fs::exists(checkpoints) ? checkpoints : folder).list()) {
    found.push_back(one.path);
  }
  if (has_manifest(folder / kModelFolder)) found.push_back(folder / kModelFolder);
  return found;
}

std::vector<fs::path> expect_candidates(const fs::path& folder) {
  std::vector<fs::path> found =
      fs::is_directory(folder) ? candidates(folder) : std::vector<fs::path>();
  if (!found.empty()) return found;
  throw std::invalid_argument(fmt::format(
      "{}: holds no checkpoint; give a checkpoint, a run, or a run's folder of checkpoints",
      folder.string()));
}

CheckpointOutcome verify(const fs::path& folder) {
  CheckpointOutcome outcome;
  for (const fs::path& candidate : expect_candidates(folder)) {
    const Problem fault = fault_of(candidate);
    if (fault) outcome.exit_code = 1;
    outcome.out += fmt::format("{}: {}\n", shown(candidate.string()),
                               fault ? "damaged: " + shown(*fault) : "whole");
  }
  return outcome;
}

/// Returns the newest checkpoint that is whole.
fs::path choose(const fs::path& folder) {
  const std::vector<fs::path> found = expect_candidates(folder);
  std::string faults;
  for (auto candidate = found.rbegin(); candidate != found.rend(); ++candidate) {
    const bool is_model = !step_of(*candidate) && found.size() > 1;
    if (is_model) continue;
    const Problem fault = fault_of(*candidate);
    if (!fault) return *candidate;
    faults += fmt::format("{}{}: {}", faults.empty() ? "" : "; ", candidate->string(), *fault);
  }
  throw std::runtime_error(faults);
}

Json report_json(const CheckpointReader& reader) {
  Json json = {{"schema", "shardlens.checkpoint_report/1"},
               {"path", reader.folder().string()},
               {"step", reader.manifest().step},
               {"files", Json::array()},
               {"tensors", Json::array()}};
  for (const ManifestFile& file : reader.manifest().files) {
    json["files"].push_back({{"name", file.name}, {"bytes", file.bytes}});
  }
  if (reader.state()) json["state"] = Json::parse(to_json(*reader.state()));
  for (const models::SafetensorsFile& file : reader.files()) {
    for (const models::SafetensorsTensor& tensor : file.tensors()) {
      json["tensors"].push_back(
          {{"name", tensor.name}, {"dtype", tensor.dtype}, {"shape", tensor.shape}});
    }
  }
  return json;
}

std::string state_text(const CheckpointState& state) {
  std::string text =
      fmt::format("{} whole epochs and {} samples, by {} rank{}\n", state.epoch,
                  state.epoch_samples, state.ranks.size(), state.ranks.size() == 1 ? "" : "s");
  if (state.train_loss) text += fmt::format("train loss {:.4f}\n", *state.train_loss);
  if (state.test_accuracy)
    text += fmt::format("test accuracy {:.2f} %\n", 100 * *state.test_accuracy);
  if (state.loss_scale) text += fmt::format("loss scale {}\n", state.loss_scale->scale);
  return text + fmt::format("configuration {}\n", shown(state.configuration));
}

std::string report_text(const CheckpointReader& reader) {
  std::string text =
      fmt::format("{}\nstep {}\n", shown(reader.folder().string()), reader.manifest().step);
  if (reader.state()) text += state_text(*reader.state());
  for (const ManifestFile& file : reader.manifest().files) {
    text += fmt::format("  {:<44} {:>10}\n", shown(file.name), bytes_text(file.bytes));
  }
  for (const models::SafetensorsFile& file : reader.files()) {
    for (const models::SafetensorsTensor& tensor : file.tensors()) {
      text += fmt::format("  {} {} [{}]\n", shown(tensor.name), tensor.dtype,
                          fmt::join(tensor.shape, ", "));
    }
  }
  return text;
}

/// Exports a checkpoint. `words` follow "export": one folder, and targets, each with its value.
std::string export_words(const std::vector<std::string>& words) {
  ExportTargets targets;
  const std::map<std::string, std::string*> flags = {{"--dcp", &targets.dcp},
                                                     {"--safetensors", &targets.safetensors},
                                                     {"--pt", &targets.pt},
                                                     {"--prefix", &targets.prefix}};
  std::vector<std::string> folders;
  for (size_t i = 0; i < words.size(); ++i) {
    const auto flag = flags.find(words[i]);
    if (flag == flags.end()) {
      folders.push_back(words[i]);
    } else if (i + 1 < words.size()) {
      *flag->second = words[++i];
    } else {
      throw std::invalid_argument(fmt::format("{}: needs a value; see --help", words[i]));
    }
  }
  const bool has_target =
      !targets.dcp.empty() || !targets.safetensors.empty() || !targets.pt.empty();
  if (folders.size() != 1 || folders.front().starts_with("-") || !has_target) {
    throw std::invalid_argument(
        "give export DIR and one of --dcp FOLDER, --safetensors FILE, --pt FILE; see --help");
  }
  return export_checkpoint(CheckpointReader(choose(folders.front())), targets);
}

}  // namespace

CheckpointOutcome checkpoint_command(const std::vector<std::string>& arguments) {
  std::vector<std::string> words = arguments;
  const bool as_json = std::erase(words, "--json") > 0;
  if (words.size() == 1 && (words[0] == "--help" || words[0] == "-h")) return {.out = kUsage};
  const std::string verb = words.empty() ? "" : words[0];
  const std::vector<std::string> rest(words.begin() + (words.empty() ? 0 : 1), words.end());
  if (verb == "export" && !as_json) return {.out = export_words(rest)};
  if (verb == "import" && !as_json) return {.out = import_checkpoint(rest)};
  const bool verifies = verb == "verify";
  if (rest.size() != 1 || (!verifies && verb != "inspect") || (verifies && as_json)) {
    throw std::invalid_argument(
        "give verify DIR, inspect DIR [--json], export DIR or import SOURCE; see --help");
  }
  if (verifies) return verify(rest[0]);
  const CheckpointReader reader(choose(rest[0]));
  return {.out = as_json ? json_text(report_json(reader)) : report_text(reader)};
}

}  // namespace shardlens::runtime
