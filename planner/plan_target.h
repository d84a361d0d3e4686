// What a plan is made for: a GPU, a null device or the CPU, and how much memory a rank has there.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "planner/gpus.h"
#include "planner/plan_torch.h"
#include "planner/pytorch_simulation.h"
#include "planner/strategy.h"
#include "planner/training_data.h"

namespace shardlens::planner {

struct PlanTarget {
  const Gpu* gpu = nullptr;  // none: the CPU
  bool is_null = false;      // a null device: nothing but the allocator's memory is on it
  /// Of one rank; nothing: not known, so everything fits.
  std::optional<int64_t> capacity_bytes;
  PlanTorch torch{};
  /// The program: a Python one with PyTorch's FSDP2, written like this; none: ours.
  std::optional<PytorchOptions> pytorch{};
  /// What --data has; nothing: whoever prepares a run looks. Given where many runs are prepared.
  std::optional<TrainingData> data{};

  /// As --device names it where a run would be simulated: "cpu" or "null:h200".
  std::string device() const;
};

/// `gpu`: what --gpu says, empty where it was not given; else --device decides, and where that is
/// `auto` or `cuda` the GPU of this machine. Throws std::invalid_argument where there is none, for
/// a GPU or device that nobody knows, and where --gpu and --device contradict each other.
PlanTarget target_of(const Config& config, const std::string& gpu);

/// The first GPU that NVIDIA's kernel module lists under `proc`, by its name in gpus.h; nothing
/// where there is none, or one that gpus.h does not know.
std::optional<std::string> gpu_of_machine(
    const std::filesystem::path& proc = "/proc/driver/nvidia/gpus");

/// The configuration of one rank alone in the place of all, as the simulation takes it.
Config one_rank_of(const Config& config, const PlanTarget& target);

}  // namespace shardlens::planner
