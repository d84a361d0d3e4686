// Random models and strategies for property tests; everything follows from the engine's seed.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "models/families.h"
#include "models/spec.h"
#include "planner/schedule/schedule.h"

namespace shardlens::tests {

/// Both bounds are included.
inline int64_t random_between(std::mt19937_64& engine, int64_t low, int64_t high) {
  return std::uniform_int_distribution<int64_t>(low, high)(engine);
}

/// Sizes that need padding, that do not, and sometimes a head larger than a block.
inline models::ModelSpec random_vit(std::mt19937_64& engine) {
  models::VitSizes sizes;
  sizes.patch_px = random_between(engine, 1, 9);
  sizes.image_px = sizes.patch_px * random_between(engine, 1, 6);
  sizes.channels = random_between(engine, 1, 4);
  sizes.layers = random_between(engine, 1, 7);
  sizes.heads = random_between(engine, 1, 4);
  sizes.width = sizes.heads * random_between(engine, 1, 24);
  sizes.mlp_width = random_between(engine, 1, 130);
  sizes.classes = random_between(engine, 1, random_between(engine, 0, 3) == 0 ? 3000 : 20);
  return models::make_spec("random", sizes);
}

inline planner::Strategy random_strategy(std::mt19937_64& engine) {
  using namespace planner;
  constexpr StrategyKind kKinds[] = {StrategyKind::fsdp, StrategyKind::ddp, StrategyKind::fsdp,
                                     StrategyKind::single};
  constexpr Reshard kReshards[] = {Reshard::automatic, Reshard::yes, Reshard::no};
  constexpr CommunicatorKind kCommunicators[] = {CommunicatorKind::none, CommunicatorKind::local,
                                                 CommunicatorKind::gloo};
  Strategy strategy;
  strategy.kind = kKinds[random_between(engine, 0, 3)];
  const bool is_single = strategy.kind == StrategyKind::single;
  strategy.world_size = is_single ? 1 : static_cast<int>(random_between(engine, 1, 64));
  strategy.reshard_after_forward = kReshards[random_between(engine, 0, 2)];
  strategy.param_dtype = random_between(engine, 0, 2) == 0 ? DType::bf16 : DType::fp32;
  strategy.communicator = kCommunicators[random_between(engine, 0, 2)];
  strategy.batch = random_between(engine, 1, 100);
  return strategy;
}

/// Every option of a strategy, each at its default half of the time.
inline planner::Strategy random_rich_strategy(std::mt19937_64& engine) {
  using namespace planner;
  constexpr DType kDTypes[] = {DType::fp32, DType::bf16, DType::fp16};
  const auto often = [&] { return random_between(engine, 0, 1) == 0; };
  const auto divisor_of = [&](int whole) {
    int divisor = static_cast<int>(random_between(engine, 1, whole));
    while (whole % divisor != 0) --divisor;
    return divisor;
  };
  Strategy strategy = random_strategy(engine);
  if (strategy.kind == StrategyKind::fsdp && often()) {
    strategy.kind = StrategyKind::hsdp;
    strategy.replicas = divisor_of(strategy.world_size);
  }
  if (often()) {
    strategy.reshard_after_forward = Reshard::partly;
    strategy.regather_shards = divisor_of(strategy.shards());
  }
  if (often()) strategy.reduce_dtype = kDTypes[random_between(engine, 0, 2)];
  if (often()) strategy.forward_prefetch = static_cast<int>(random_between(engine, 0, 4));
  if (often()) strategy.backward_prefetch = static_cast<int>(random_between(engine, 0, 4));
  switch (random_between(engine, 0, 7)) {
    case 0:
      strategy.wrap = {.kind = WrapKind::root};
      break;
    case 1:
      strategy.wrap = {.kind = WrapKind::size, .numel = random_between(engine, 1, 20000)};
      break;
    case 2:
      strategy.wrap = {.kind = WrapKind::module, .module = ".*encoder_layer_[02468].*"};
      break;
    default:
      break;
  }
  if (random_between(engine, 0, 3) == 0) strategy.ignore = ".*ln_1.*|class_token";
  if (random_between(engine, 0, 3) == 0) strategy.freeze = "conv_proj|.*encoder_layer_[01]";
  if (random_between(engine, 0, 3) == 0) strategy.keep_fp32 = ".*ln_[12]";
  if (often()) strategy.microbatches = static_cast<int>(random_between(engine, 1, 3));
  if (often()) strategy.sync = Sync::last;
  if (often()) strategy.recompute_every = static_cast<int>(random_between(engine, 0, 3));
  strategy.holds_gradients = often();
  if (often()) strategy.offload = static_cast<Offload>(random_between(engine, 1, 3));
  return strategy;
}

}  // namespace shardlens::tests
