#include "planner/strategy.h"

#include <fmt/format.h>

#include <stdexcept>

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

CommunicatorKind communicator(const Config& config) {
  if (config.workers == 1) return CommunicatorKind::none;
  return config.communicator == "gloo" ? CommunicatorKind::gloo : CommunicatorKind::local;
}

}  // namespace

Strategy strategy_of(const Config& config) {
  constexpr int64_t kMostWorkers = 1024;
  if (config.workers > kMostWorkers) {
    throw std::invalid_argument(
        fmt::format("--workers {}: one host starts at most {} ranks; give "
                    "a smaller number",
                    config.workers, kMostWorkers));
  }
  Strategy strategy{.kind = strategy_kind(config.strategy),
                    .world_size = static_cast<int>(config.workers),
                    .reshard_after_forward = reshard(config.reshard_after_forward),
                    .communicator = communicator(config),
                    .batch = config.batch};
  if (strategy.kind == StrategyKind::single && config.workers != 1) {
    throw std::invalid_argument(fmt::format(
        "--strategy single --workers {}: single is one rank; give --strategy ddp or fsdp, or "
        "--workers 1",
        config.workers));
  }
  return strategy;
}

}  // namespace shardlens::planner
