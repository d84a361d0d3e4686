#include "planner/strategy.h"

#include <fmt/format.h>

#include <stdexcept>

#include "planner/gpus.h"
#include "profiler/units.h"

namespace shardlens::planner {

int64_t bytes_of(DType dtype) { return dtype == DType::fp32 ? 4 : 2; }

std::string_view to_string(DType dtype) {
  switch (dtype) {
    case DType::fp32:
      return "fp32";
    case DType::bf16:
      return "bf16";
    case DType::fp16:
      return "fp16";
  }
  throw std::logic_error("dtype out of range");
}

std::string_view to_string(StrategyKind kind) {
  switch (kind) {
    case StrategyKind::single:
      return "single";
    case StrategyKind::ddp:
      return "ddp";
    case StrategyKind::fsdp:
      return "fsdp";
  }
  throw std::logic_error("strategy out of range");
}

namespace {

StrategyKind strategy_kind(const std::string& word) {
  if (word == "single") return StrategyKind::single;
  return word == "ddp" ? StrategyKind::ddp : StrategyKind::fsdp;
}

Reshard reshard(const std::string& word) {
  if (word == "auto") return Reshard::automatic;
  return word == "true" ? Reshard::yes : Reshard::no;
}

DType param_dtype(const std::string& word) { return word == "bf16" ? DType::bf16 : DType::fp32; }

/// Who moves the bytes between ranks on this device. NCCL is asked of a solo rank on the null
/// device, too: its stub plays the absent ranks.
CommunicatorKind communicator(const Config& config, const Device& device) {
  const bool is_alone = config.solo_rank >= 0 && device.is_cpu();
  if (world_size_of(config) == 1 || is_alone) return CommunicatorKind::none;
  if (config.communicator == "gloo") return CommunicatorKind::gloo;
  if (config.communicator == "local") return CommunicatorKind::local;
  return device.is_cpu() ? CommunicatorKind::local : CommunicatorKind::nccl;
}

void check_solo_rank(const Config& config, const Device& device) {
  if (config.solo_rank < 0) {
    if (config.world == 0 || config.world == config.workers) return;
    throw std::invalid_argument(
        fmt::format("--world {}: only {} of its ranks would run; give --solo-rank R for one of "
                    "them alone, or --workers {}",
                    config.world, config.workers, config.world));
  }
  if (device.kind == DeviceKind::cuda) {
    throw std::invalid_argument(
        "--solo-rank: on a GPU NCCL would wait for the other ranks; give --device null:GPU or cpu");
  }
  if (config.workers != 1) {
    throw std::invalid_argument(
        fmt::format("--solo-rank {}: one rank runs alone; give --workers 1, not {}",
                    config.solo_rank, config.workers));
  }
  if (config.solo_rank >= world_size_of(config)) {
    throw std::invalid_argument(
        fmt::format("--solo-rank {}: ranks count from 0; give less than "
                    "--world {}",
                    config.solo_rank, world_size_of(config)));
  }
}

void check_communicators(const Config& config, const Device& device) {
  if (config.communicator == "nccl" && device.is_cpu()) {
    throw std::invalid_argument(
        "--communicator nccl: it serves GPUs only; give --device cuda, or --communicator local");
  }
  if (config.communicators < 1 || config.communicators > 2) {
    throw std::invalid_argument(
        fmt::format("--communicators {}: give 1 or 2", config.communicators));
  }
}

void check_ranks(const Config& config) {
  constexpr int64_t kMostWorkers = 1024;
  constexpr int64_t kMostRanks = 1 << 20;
  if (config.workers > kMostWorkers) {
    throw std::invalid_argument(
        fmt::format("--workers {}: one host starts at most {} ranks; give a smaller number",
                    config.workers, kMostWorkers));
  }
  if (config.world > kMostRanks) {
    throw std::invalid_argument(fmt::format("--world {}: at most {} ranks; give a smaller number",
                                            config.world, kMostRanks));
  }
  if (config.strategy == "single" && world_size_of(config) != 1) {
    throw std::invalid_argument(fmt::format(
        "--strategy single with {} ranks: single is one rank; give --strategy ddp or fsdp, or "
        "--workers 1",
        world_size_of(config)));
  }
}

}  // namespace

int64_t world_size_of(const Config& config) {
  return config.world > 0 ? config.world : config.workers;
}

Device device_of(const Config& config) {
  constexpr std::string_view kNull = "null:";
  Device device;
  if (config.device == "cuda") device.kind = DeviceKind::cuda;
  if (config.device.starts_with(kNull)) {
    device.kind = DeviceKind::null;
    device.gpu = find_gpu(config.device.substr(kNull.size())).name;
  } else if (config.device != "cpu" && config.device != "cuda") {
    throw std::invalid_argument(fmt::format(
        "--device {}: not a device; give cpu, cuda, or null:GPU such as null:h200", config.device));
  }
  if (config.capacity.empty()) return device;
  if (device.kind != DeviceKind::null) {
    throw std::invalid_argument(fmt::format(
        "--capacity {}: only a null device's memory can be chosen; give --device null:GPU",
        config.capacity));
  }
  try {
    device.capacity_bytes = profiler::parse_bytes(config.capacity);
  } catch (const std::invalid_argument& error) {
    throw std::invalid_argument(fmt::format("--capacity {}", error.what()));
  }
  return device;
}

Strategy strategy_of(const Config& config) {
  const Device device = device_of(config);
  check_ranks(config);
  check_solo_rank(config, device);
  check_communicators(config, device);
  const CommunicatorKind chosen = communicator(config, device);
  const bool serves_host = chosen == CommunicatorKind::local || chosen == CommunicatorKind::gloo;
  return {.kind = strategy_kind(config.strategy),
          .world_size = static_cast<int>(world_size_of(config)),
          .reshard_after_forward = reshard(config.reshard_after_forward),
          .param_dtype = param_dtype(config.param_dtype),
          .communicator = chosen,
          .staged = serves_host && !device.is_cpu(),
          .batch = config.batch};
}

}  // namespace shardlens::planner
