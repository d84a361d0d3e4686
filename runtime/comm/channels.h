// Maps the schedule's channels to one rank's communicators, and offers operations over all ranks of
// the world, even if no single communicator joins all of them.
#pragma once

#include <span>

#include "planner/schedule/schedule.h"
#include "runtime/comm/communicator.h"

namespace shardlens::runtime {

/// Points to one rank's communicators, which their maker owns. Two channels may share one.
struct Channels {
  // Null if the schedule has no such channel. It always has `reduce`.
  Communicator* gather = nullptr;
  Communicator* reduce = nullptr;
  Communicator* regather = nullptr;
  Communicator* replicate = nullptr;

  /// Throws std::logic_error for a channel that this rank has not joined.
  Communicator& at(planner::Channel channel) const;
};

/// Sums over all ranks as Communicator::sum does: first over the ranks of `reduce`, then over
/// `replicate`, which joins each of those ranks with the same-numbered rank of every other set.
void world_sum(const Channels& channels, const Operation& operation, std::span<double> values);

/// Waits for all ranks, as Communicator::barrier does.
void world_barrier(const Channels& channels, const Operation& operation);

}  // namespace shardlens::runtime
