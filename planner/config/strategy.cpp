#include "planner/config/strategy.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <stdexcept>

#include "base/shown.h"
#include "base/units.h"

namespace shardlens::planner {

int Strategy::shards() const {
  if (kind == StrategyKind::fsdp) return world_size;
  return kind == StrategyKind::hsdp ? world_size / replicas : 1;
}

namespace {

/// Reads a whole number of at least 1; returns 0 if the text is none.
int64_t count_of(std::string_view text) {
  int64_t count = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  const bool is_whole = error == std::errc() && end == text.data() + text.size();
  return is_whole && count > 0 ? count : 0;
}

constexpr int64_t kMostSmallCount = int64_t{1} << 20;

int small_count(const std::string& option, int64_t count) {
  if (count <= kMostSmallCount) return static_cast<int>(count);
  throw std::invalid_argument(
      fmt::format("--{} {}: at most {}; give a smaller number", option, count, kMostSmallCount));
}

}  // namespace

std::string text_of(const ReshardChoice& reshard) {
  switch (reshard.mode) {
    case Reshard::automatic:
      return "auto";
    case Reshard::yes:
      return "true";
    case Reshard::no:
      return "false";
    case Reshard::partly:
      return fmt::format("{}", reshard.kept);
  }
  throw std::logic_error("reshard mode out of range");
}

ReshardChoice reshard_named(std::string_view word) {
  if (word == "auto") return {.mode = Reshard::automatic};
  if (word == "true") return {.mode = Reshard::yes};
  if (word == "false") return {.mode = Reshard::no};
  const int64_t kept = count_of(word);
  if (kept > 0) {
    return {.mode = Reshard::partly, .kept = small_count("reshard-after-forward", kept)};
  }
  throw std::invalid_argument(
      fmt::format("--reshard-after-forward {}: not one of its words; give auto, true, false or a "
                  "number of ranks",
                  shown(word)));
}

std::string text_of(const Recompute& recompute) {
  if (recompute.every == 0) return "none";
  return recompute.every == 1 ? "full" : fmt::format("every:{}", recompute.every);
}

Recompute recompute_named(std::string_view word) {
  constexpr std::string_view kEvery = "every:";
  if (word == "none") return {.every = 0};
  if (word == "full") return {.every = 1};
  const int64_t every = word.starts_with(kEvery) ? count_of(word.substr(kEvery.size())) : 0;
  if (every > 0) return {.every = small_count("recompute", every)};
  throw std::invalid_argument(
      fmt::format("--recompute {}: not one of its words; give none, full or every:K", shown(word)));
}

namespace {

Wrap wrap_of(const std::string& text) {
  if (text == "block") return {};
  if (text == "root") return {.kind = WrapKind::root};
  constexpr std::string_view kSize = "size:", kModule = "module:";
  if (text.starts_with(kModule) && text.size() > kModule.size()) {
    return {.kind = WrapKind::module, .module = text.substr(kModule.size())};
  }
  const int64_t numel = text.starts_with(kSize) ? count_of(text.substr(kSize.size())) : 0;
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
        fmt::format("--replicas {}: {} ranks do not divide into so many copies; give a divisor",
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

}  // namespace

int64_t world_size_of(const Config& config) {
  return config.world > 0 ? config.world : config.workers;
}

Device device_of(const Config& config) {
  Device device = device_of(config.device);
  if (config.capacity.empty()) return device;
  if (device.kind != DeviceKind::null) {
    throw std::invalid_argument(fmt::format(
        "--capacity {}: only a null device's memory can be chosen; give --device null:GPU",
        config.capacity));
  }
  device.capacity_bytes = *capacity_of(config);
  return device;
}

std::optional<int64_t> capacity_of(const Config& config) {
  if (config.capacity.empty()) return std::nullopt;
  try {
    return parse_bytes(config.capacity);
  } catch (const std::invalid_argument& error) {
    throw std::invalid_argument(fmt::format("--capacity {}", error.what()));
  }
}

std::optional<DType> output_dtype_of(const Config& config) {
  return choice_named<DType>(to_string(config.output_dtype));
}

LossScale loss_scale_of(const Config& config) {
  constexpr double kFirst = 65536;  // as PyTorch's GradScaler begins
  const bool is_needed = config.param_dtype == DType::fp16;
  if (config.loss_scale == "auto") {
    return is_needed ? LossScale{LossScale::Kind::dynamic, kFirst} : LossScale{};
  }
  if (config.loss_scale == "none") {
    if (!is_needed) return {};
    throw std::invalid_argument(
        "--loss-scale none: small gradients would be lost in fp16; give auto or a number, or "
        "--param-dtype bf16");
  }
  double value = 0;
  const char* const end = config.loss_scale.data() + config.loss_scale.size();
  const auto [stop, error] = std::from_chars(config.loss_scale.data(), end, value);
  if (error == std::errc() && stop == end && std::isfinite(value) && value > 0) {
    return {LossScale::Kind::constant, value};
  }
  throw std::invalid_argument(
      fmt::format("--loss-scale {}: not one of its words; give auto, none or a number above 0",
                  config.loss_scale));
}

namespace {

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

namespace {

[[noreturn]] void refuse_steps(const Config& config, std::string_view why) {
  throw std::invalid_argument(fmt::format(
      "--profile {}: {}; give off, on, or FIRST:LAST such as 3:5", config.profile, why));
}

int64_t step_number(const Config& config, std::string_view text) {
  int64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc{} || stop != end) refuse_steps(config, "not a range of steps");
  if (number < 1) refuse_steps(config, "steps count from 1");
  return number;
}

}  // namespace

Recording recording_of(const Config& config) {
  const std::string_view text = config.profile;
  if (text == "off" || text == "on") return {.wanted = text == "on", .steps = {}};
  const size_t colon = text.find(':');
  if (colon == std::string_view::npos) refuse_steps(config, "not one of its words");
  const StepRange steps{.first = step_number(config, text.substr(0, colon)),
                        .last = step_number(config, text.substr(colon + 1))};
  if (steps.last < steps.first) refuse_steps(config, "the last step comes before the first");
  return {.wanted = true, .steps = steps};
}

namespace {

/// Returns the reason why a run has nothing to keep in checkpoints; nullptr: it has.
const char* reason_for_no_checkpoint(const Config& config) {
  if (device_of(config).kind == DeviceKind::null) return "a null device keeps no values";
  const bool is_alone = config.solo_rank >= 0 && world_size_of(config) > 1;
  return is_alone ? "a solo rank has no values of the other ranks" : nullptr;
}

}  // namespace

Checkpointing checkpointing_of(const Config& config) {
  const std::string& every = config.checkpoint_every;
  const int64_t steps = count_of(every);
  const bool is_word = every == "auto" || every == "epoch" || every == "none";
  if (!is_word && steps == 0) {
    throw std::invalid_argument(fmt::format(
        "--checkpoint-every {}: not one of its words; give auto, epoch, none or a number of steps",
        every));
  }
  const char* const reason = reason_for_no_checkpoint(config);
  const bool is_asked = every == "epoch" || steps > 0;
  if (is_asked && reason != nullptr) {
    throw std::invalid_argument(
        fmt::format("--checkpoint-every {}: {}; give --checkpoint-every none", every, reason));
  }
  const bool is_due = every == "auto" && reason == nullptr && config.data != "synthetic";
  return {.wanted = is_asked || is_due,
          .every_steps = steps,
          .asynchronous = config.checkpoint_async == Switch::on,
          .keep = config.keep,
          .by = config.keep_by};
}

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
