// One rank's communicators by the schedule's channels, and what is done over all ranks of the
// world, which no single one of them need join.
#pragma once

#include <span>

#include "planner/schedule.h"
#include "runtime/comm/communicator.h"

namespace shardlens::runtime {

/// Whoever made the communicators keeps them. Two channels may share one.
struct Channels {
  // Null: not among the schedule's channels. `reduce` always is.
  Communicator* gather = nullptr;
  Communicator* reduce = nullptr;
  Communicator* regather = nullptr;
  Communicator* replicate = nullptr;

  /// Throws std::logic_error for a channel that this rank has not joined.
  Communicator& at(planner::Channel channel) const;
};

/// As Communicator::sum, over all ranks: over those of `reduce` first, then over `replicate`, which
/// joins each of them with its like in every other set.
void world_sum(const Channels& channels, const Operation& operation, std::span<double> values);

/// As Communicator::barrier, over all ranks.
void world_barrier(const Channels& channels, const Operation& operation);

}  // namespace shardlens::runtime
