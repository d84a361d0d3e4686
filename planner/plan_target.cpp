#include "planner/plan_target.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <stdexcept>

#include "base/units.h"

namespace shardlens::planner {

namespace {

int64_t host_bytes() {
  return static_cast<int64_t>(::sysconf(_SC_PHYS_PAGES)) * ::sysconf(_SC_PAGESIZE);
}

const Gpu& gpu_here() {
  const auto name = gpu_of_machine();
  if (name) return find_gpu(*name);
  throw std::invalid_argument(
      "this machine has no known GPU; name one to plan for: --gpu h200, or --device cpu");
}

PlanTarget gpu_target(const Gpu& gpu, bool is_null, std::optional<int64_t> capacity_bytes) {
  return {
      .gpu = &gpu, .is_null = is_null, .capacity_bytes = capacity_bytes.value_or(gpu.memory_bytes)};
}

}  // namespace

DeviceChoice PlanTarget::device() const {
  if (gpu == nullptr || is_null) return simulated_device();
  return {.kind = DeviceKind::cuda};
}

DeviceChoice PlanTarget::simulated_device() const {
  if (gpu == nullptr) return {.kind = DeviceKind::cpu};
  return {.kind = DeviceKind::null, .gpu = std::string(gpu->name)};
}

std::optional<std::string> gpu_of_machine(const std::filesystem::path& proc) {
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(proc, none)) {
    std::ifstream information(entry.path() / "information");
    for (std::string line; std::getline(information, line);) {
      if (!line.starts_with("Model:")) continue;
      const std::string model = line.substr(line.find_first_not_of(" \t", line.find(':') + 1));
      if (const Gpu* const known = find_displayed_gpu(model)) return std::string(known->name);
    }
  }
  return std::nullopt;
}

PlanTarget target_of(const Config& config, const std::string& gpu) {
  const std::optional<int64_t> capacity_bytes = capacity_of(config);
  const DeviceKind kind = config.device.kind.value_or(DeviceKind::cuda);
  if (!gpu.empty() && kind != DeviceKind::cuda) {
    throw std::invalid_argument(
        fmt::format("--gpu {} with --device {}: give one of them", gpu, text_of(config.device)));
  }
  switch (kind) {
    case DeviceKind::cpu:
      return {.capacity_bytes = capacity_bytes.value_or(host_bytes() / config.workers)};
    case DeviceKind::null:
      return gpu_target(find_gpu(config.device.gpu), /*is_null=*/true, capacity_bytes);
    case DeviceKind::cuda:
      break;
  }
  return gpu_target(gpu.empty() ? gpu_here() : find_gpu(gpu), /*is_null=*/false, capacity_bytes);
}

Config one_rank_of(const Config& config, const PlanTarget& target) {
  constexpr int64_t kMostWorkers = 1024;  // that one host may start
  Config one = config;
  const int64_t world = world_size_of(config);
  one.device = target.simulated_device();
  one.capacity.clear();
  one.world = world;
  one.workers = world;
  if (target.gpu != nullptr || world > kMostWorkers) {
    one.workers = 1;
    one.solo_rank = world > 1 ? std::max<int64_t>(config.solo_rank, 0) : config.solo_rank;
  } else {
    one.solo_rank = -1;
  }
  return one;
}

}  // namespace shardlens::planner
