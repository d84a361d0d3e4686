// Random models and strategies for property tests; everything follows from the engine's seed.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "models/spec.h"
#include "planner/schedule.h"

namespace shardlens::test {

/// Both ends included.
inline int64_t random_between(std::mt19937_64& engine, int64_t low, int64_t high) {
  return std::uniform_int_distribution<int64_t>(low, high)(engine);
}

/// Sizes that need padding, that do not, and now and then a head larger than a block.
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
  return models::make_vit("random", sizes);
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

}  // namespace shardlens::test
