// The target of a plan: a GPU, a null device or the CPU, and how much memory a rank has there.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "base/gpus.h"
#include "models/torch_rules.h"
#include "planner/config/config.h"
#include "planner/config/training_data.h"

namespace shardlens::planner {

struct PlanTarget {
  const Gpu* gpu = nullptr;  // null: the CPU
  bool is_null = false;      // a null device, which holds only the allocator's memory
  /// The memory of one rank's device; nothing: it is not known, so everything fits.
  std::optional<int64_t> capacity_bytes;
  const models::TorchRules* torch = &models::own_torch_rules();  // by which memory is taken
  /// The contents of --data, set if many runs are prepared; nothing: each preparation looks.
  std::optional<TrainingData> data{};

  /// Returns the device that the run would have.
  DeviceChoice device() const;
  /// Returns the device on which it is simulated: the CPU, or a null device for a GPU.
  DeviceChoice simulated_device() const;
};

/// Finds the target of a plan. `gpu` is the value of --gpu, empty if it was not given; then
/// --device decides, and if that is `auto` or `cuda`, the GPU of this machine. Throws
/// std::invalid_argument if the machine has none, for an unknown GPU or device, and if --gpu and
/// --device contradict each other.
PlanTarget target_of(const Config& config, const std::string& gpu);

/// Returns the first GPU that NVIDIA's kernel module lists under `proc`, by its name in gpus.h;
/// nothing if there is none, or one that gpus.h does not know.
std::optional<std::string> gpu_of_machine(
    const std::filesystem::path& proc = "/proc/driver/nvidia/gpus");

/// Returns the configuration with one rank standing for all, which the simulation takes.
Config one_rank_of(const Config& config, const PlanTarget& target);

}  // namespace shardlens::planner
