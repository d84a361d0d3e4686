// The settings that decide the order of a step and the memory of a rank. A schedule is built from
// them.
#pragma once

#include <cstdint>
#include <string>

#include "base/dtype.h"
#include "planner/config/choices.h"
#include "planner/config/config.h"

namespace shardlens::planner {

/// The units that are gathered together: those of a block of the model, all of them, runs of units
/// of at least `numel` elements, or a module whose name matches.
enum class WrapKind { block, root, size, module };

struct Wrap {
  WrapKind kind = WrapKind::block;
  int64_t numel = 0;     // if kind is size
  std::string module{};  // if kind is module: a regular expression

  bool operator==(const Wrap&) const = default;
};

/// The settings that decide the order of a step and the memory of a rank.
struct Strategy {
  StrategyKind kind = StrategyKind::fsdp;
  int world_size = 1;
  Reshard reshard_after_forward = Reshard::automatic;
  DType param_dtype = DType::fp32;  // for gathers and compute; masters are fp32
  CommunicatorKind communicator = CommunicatorKind::none;
  bool staged = false;  // a communicator of the CPU serves another device, through host memory
  int64_t batch = 64;   // samples a rank and microbatch

  int replicas = 1;         // hsdp: copies of the state; world_size / replicas ranks share each
  int regather_shards = 0;  // Reshard::partly: ranks that keep a copy between them
  DType reduce_dtype = DType::fp32;
  Offload offload = Offload::none;
  int forward_prefetch = 1;  // gathers that may run ahead of the compute
  int backward_prefetch = 1;
  Wrap wrap{};
  std::string ignore{};     // regular expressions for modules or parameters: whole on every rank,
  std::string freeze{};     // ... without gradient,
  std::string keep_fp32{};  // ... gathered and computed with in fp32
  int microbatches = 1;     // a step
  Sync sync = Sync::every;
  int recompute_every = 0;       // blocks whose index it divides keep only their input; 0: none
  bool holds_gradients = false;  // no step before all gradients are known: clipping, loss scale

  /// Returns how many ranks share one copy of the state.
  int shards() const;
};

/// Returns the strategy of a run. Throws std::invalid_argument if options contradict each other.
Strategy strategy_of(const Config& config);

}  // namespace shardlens::planner
