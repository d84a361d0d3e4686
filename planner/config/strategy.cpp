#include "planner/config/strategy.h"

#include <fmt/format.h>

#include <stdexcept>

#include "planner/config/loss_scale.h"

namespace shardlens::planner {

int Strategy::shards() const {
  if (kind == StrategyKind::fsdp) return world_size;
  return kind == StrategyKind::hsdp ? world_size / replicas : 1;
}

namespace {

Wrap wrap_of(const std::string& text) {
  if (text == "block") return {};
  if (text == "root") return {.kind = WrapKind::root};
  constexpr std::string_view kSize = "size:", kModule = "module:";
  if (text.starts_with(kModule) && text.size() > kModule.size()) {
    return {.kind = WrapKind::module, .module = text.substr(kModule.size())};
  }
  const int64_t numel = text.starts_with(kSize) ? count_named(text.substr(kSize.size())) : 0;
  if (numel > 0) return {.kind = WrapKind::size, .numel = numel};
  throw std::invalid_argument(fmt::format(
      "--wrap {}: not a policy; give block, root, size:ELEMENTS or module:REGEX", text));
}

/// Returns the expression of "module:REGEX" or "REGEX".
std::string expression_of(const std::string& text) {
  constexpr std::string_view kModule = "module:";
  return text.starts_with(kModule) ? text.substr(kModule.size()) : text;
}

/// Chooses the communicator for this device. NCCL is chosen for a solo rank on the null device,
/// too: its stub plays the absent ranks.
CommunicatorKind communicator(const Config& config, const Device& device) {
  const bool is_alone = config.solo_rank >= 0 && device.is_cpu();
  if (world_size_of(config) == 1 || is_alone) return CommunicatorKind::none;
  if (config.communicator == CommunicatorChoice::gloo) return CommunicatorKind::gloo;
  if (config.communicator == CommunicatorChoice::local) return CommunicatorKind::local;
  return device.is_cpu() ? CommunicatorKind::local : CommunicatorKind::nccl;
}

void check_solo_rank(const Config& config, const Device& device) {
  if (config.solo_rank < 0) {
    if (config.world == 0 || config.world == config.workers) return;
    throw std::invalid_argument(
        fmt::format("--world {}: only {} of its ranks would run; give --solo-rank R for only "
                    "one of them, or --workers {}",
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
  if (config.communicator == CommunicatorChoice::nccl && device.is_cpu()) {
    throw std::invalid_argument(
        "--communicator nccl: it serves GPUs only; give --device cuda, or --communicator local");
  }
  if (config.communicators < 1 || config.communicators > 2) {
    throw std::invalid_argument(
        fmt::format("--communicators {}: give 1 or 2", config.communicators));
  }
}

void check_rank_options(const Config& config) {
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
  if (config.strategy == StrategyKind::hsdp && world_size_of(config) % config.replicas != 0) {
    throw std::invalid_argument(
        fmt::format("--replicas {}: {} ranks do not divide into that many copies; give a divisor",
                    config.replicas, world_size_of(config)));
  }
  if (config.strategy != StrategyKind::hsdp && config.replicas != 1) {
    throw std::invalid_argument(fmt::format(
        "--replicas {}: only hsdp has copies of shards; give --strategy hsdp", config.replicas));
  }
  if (config.strategy == StrategyKind::single && world_size_of(config) != 1) {
    throw std::invalid_argument(fmt::format(
        "--strategy single with {} ranks: single is one rank; give --strategy ddp or fsdp, or "
        "--workers 1",
        world_size_of(config)));
  }
}

void check_numerics(const Config& config, const Device& device) {
  if (config.attention == AttentionChoice::efficient && device.is_cpu()) {
    throw std::invalid_argument(
        "--attention efficient: that kernel runs on GPUs only; give flash, math or auto");
  }
  if (config.momentum != 0 && config.optimizer != OptimizerKind::sgd) {
    throw std::invalid_argument(fmt::format("--momentum {}: {} has none; give --optimizer sgd",
                                            config.momentum, to_string(config.optimizer)));
  }
}

}  // namespace

Strategy strategy_of(const Config& config) {
  const Device device = device_of(config);
  check_rank_options(config);
  check_solo_rank(config, device);
  check_communicators(config, device);
  check_numerics(config, device);
  const CommunicatorKind chosen = communicator(config, device);
  const bool serves_host = chosen == CommunicatorKind::local || chosen == CommunicatorKind::gloo;
  return {.kind = config.strategy,
          .world_size = static_cast<int>(world_size_of(config)),
          .reshard_after_forward = config.reshard_after_forward.mode,
          .param_dtype = config.param_dtype,
          .communicator = chosen,
          .staged = serves_host && !device.is_cpu(),
          .batch = config.batch,
          .replicas = small_count("replicas", config.replicas),
          .regather_shards = config.reshard_after_forward.kept,
          .reduce_dtype = config.reduce_dtype,
          .offload = config.offload,
          .forward_prefetch = small_count("forward-prefetch", config.forward_prefetch),
          .backward_prefetch = small_count("backward-prefetch", config.backward_prefetch),
          .wrap = wrap_of(config.wrap),
          .ignore = expression_of(config.ignore),
          .freeze = expression_of(config.freeze),
          .keep_fp32 = expression_of(config.keep_fp32),
          .microbatches = small_count("accumulate", config.accumulate),
          .sync = config.sync,
          .recompute_every = config.recompute.every,
          .holds_gradients =
              config.clip_norm > 0 || loss_scale_of(config).kind != LossScale::Kind::none};
}

}  // namespace shardlens::planner
