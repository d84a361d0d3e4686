// Runs `shardlens train` on a tiny model and tiny data, in its own storage.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/support/idx_files.h"
#include "tests/support/process.h"

namespace shardlens::tests {

/// Small and quick: 2 layers, images of 8 x 8 px.
inline constexpr const char* kTinyModel =
    R"({"family": "vit", "image_px": 8, "patch_px": 4, "channels": 1, "layers": 2, "heads": 2,
        "width": 16, "mlp_width": 32, "classes": 4})";

/// A storage, a tiny model and tiny data; a command line on them.
class TrainBench {
 public:
  explicit TrainBench(uint32_t train_samples = 64) {
    write_file(folder_.file("tiny.json"), kTinyModel);
    std::filesystem::create_directory(folder_.file("data"));
    write_idx_dataset(folder_.file("data"),
                      {.train = train_samples, .test = 20, .px = 8, .classes = 4});
  }

  std::vector<std::string> command(const std::vector<std::string>& flags) const {
    std::vector<std::string> words = {SHARDLENS_TRAIN,
                                      "--device",
                                      "cpu",
                                      "--model",
                                      folder_.file("tiny.json"),
                                      "--data",
                                      folder_.file("data"),
                                      "--storage",
                                      folder_.file("runs"),
                                      "--name",
                                      "r",
                                      "--batch",
                                      "8",
                                      "--log-every",
                                      "1"};
    words.insert(words.end(), flags.begin(), flags.end());
    return words;
  }
  ProcessEnd train(const std::vector<std::string>& flags) const { return run(command(flags)); }

  std::string file(const std::string& name) const { return folder_.file(name); }
  /// A path in the run's folder.
  std::string run_file(const std::string& name) const { return file("runs/r/" + name); }
  nlohmann::json result() const {
    return nlohmann::json::parse(read_file(run_file("result.json")));
  }
  /// Weights and moments of the remaining checkpoints, and the model: every byte, by file.
  std::map<std::string, std::string> tensors() const {
    namespace fs = std::filesystem;
    std::map<std::string, std::string> files;
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(run_file(""))) {
      const std::string name = fs::relative(entry.path(), run_file("")).string();
      if (!name.ends_with(".safetensors") || name.starts_with("checkpoints/damaged-")) continue;
      files[name] = read_file(entry.path().string());
    }
    return files;
  }
  /// The losses by step, also for a run that goes on.
  std::vector<double> losses(const std::string& run = "r") const {
    std::ifstream lines(file("runs/" + run + "/metrics.jsonl"));
    std::vector<double> losses;
    for (std::string line; std::getline(lines, line) && !lines.eof();) {
      losses.push_back(nlohmann::json::parse(line).at("loss").get<double>());
    }
    return losses;
  }

 private:
  TemporaryFolder folder_;
};

}  // namespace shardlens::tests
