#include "runtime/comm/channels.h"

#include "base/check.h"

namespace shardlens::runtime {
namespace {

Communicator* find(const Channels& channels, planner::Channel channel) {
  switch (channel) {
    case planner::Channel::none:
      return nullptr;
    case planner::Channel::gather:
      return channels.gather;
    case planner::Channel::reduce:
      return channels.reduce;
    case planner::Channel::regather:
      return channels.regather;
    case planner::Channel::replicate:
      return channels.replicate;
  }
  unreachable("channel out of range");
}

}  // namespace

Communicator& Channels::at(planner::Channel channel) const {
  Communicator* const found = find(*this, channel);
  check(found != nullptr, "an action uses a channel that was not joined");
  return *found;
}

void world_sum(const Channels& channels, const Operation& operation, std::span<double> values) {
  channels.reduce->sum(operation, values);
  if (channels.replicate != nullptr) channels.replicate->sum(operation, values);
}

void world_barrier(const Channels& channels, const Operation& operation) {
  channels.reduce->barrier(operation);
  if (channels.replicate != nullptr) channels.replicate->barrier(operation);
}

}  // namespace shardlens::runtime
