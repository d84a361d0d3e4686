// The folder of a recorded Python program, as `shardlens record` leaves it, without a program.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "tests/support/recordings/random_events.h"
#include "tests/support/recordings/view_recording.h"
#include "tests/support/temporary_folder.h"

namespace shardlens::tests {

struct ProgramFolder {
  std::string path;  // of the run
  nlohmann::json config = {};
  nlohmann::json facts = {};  // rankR.json
  ViewRecordingOptions options = {.world_size = 1, .steps = 1, .device = "null:h100"};

  /// Describes `sh train.py`, in a folder that has such a file, with a peak of this many MiB.
  explicit ProgramFolder(std::string run, int64_t mib = 100) : path(std::move(run)) {
    const auto folder = std::filesystem::path(path).parent_path();
    std::filesystem::create_directories(folder);
    write_file((folder / "train.py").string(), "");
    config = {{"command", {"sh", "train.py"}},
              {"flags", {"--device", "null:h100"}},
              {"directory", folder.string()},
              {"python", "/bin/sh"}};
    facts["verdict"] = {{"line", "fits"},
                        {"exit_code", 0},
                        {"is_out_of_memory", false},
                        {"allocated_bytes", mib << 20},
                        {"reserved_bytes", (mib + 20) << 20},
                        {"beside_bytes", int64_t{10} << 20}};
  }

  std::string recording() const { return path + "/profiles/rank0.slp"; }

  void write() const {
    std::filesystem::create_directories(path + "/profiles");
    auto profile = view_recording(options);
    profile.header.config = config.dump();
    profile.header.train.clear();
    std::filesystem::remove(recording());
    write_profile(recording(), profile);
    write_file(path + "/profiles/rank0.json", facts.dump());
  }
};

}  // namespace shardlens::tests
