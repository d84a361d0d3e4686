#include "runtime/comm/none.h"

#include <cstring>

#include "base/check.h"
#include "runtime/comm/operation_text.h"

namespace shardlens::runtime {

NoneCommunicator::NoneCommunicator(int rank, planner::RankSet ranks)
    : world_rank_(rank), ranks_(ranks) {
  check(rank >= 0, "solo rank outside its world");
  check(ranks.size >= 1 && ranks.stride >= 1, "solo rank of a set without ranks");
}

Ticket NoneCommunicator::issue(const Operation& operation) {
  check_abort(operation);
  return next_issue_++;
}

void NoneCommunicator::check_abort(const Operation& operation) const {
  if (!note_.is_raised()) return;
  throw CommunicationError(to_text(world_rank_, operation) + ": stopped: " + note_.reason());
}

Ticket NoneCommunicator::all_gather(const Operation& operation, std::span<const GatherBuffer>) {
  return issue(operation);
}

Ticket NoneCommunicator::reduce_scatter(const Operation& operation, const ReduceBuffers& buffers) {
  check(buffers.shard_numel >= 0, "reduce_scatter: a negative number of elements");
  const Ticket ticket = issue(operation);
  const auto bytes = static_cast<size_t>(buffers.shard_numel * bytes_of(buffers.dtype));
  if (bytes == 0) return ticket;
  const auto* input = static_cast<const std::byte*>(buffers.input);
  std::memmove(buffers.output, input + static_cast<size_t>(rank()) * bytes, bytes);
  return ticket;
}

Ticket NoneCommunicator::all_reduce(const Operation& operation, void*, int64_t, DType) {
  return issue(operation);
}

void NoneCommunicator::sum(const Operation& operation, std::span<double>) {
  wait(issue(operation));
}

void NoneCommunicator::barrier(const Operation& operation) { wait(issue(operation)); }

void NoneCommunicator::wait(Ticket ticket) {
  check(ticket == next_wait_ && ticket < next_issue_,
        "communicator: tickets are waited for in the order of issue");
  Operation operation;
  operation.kind = "WAIT";
  check_abort(operation);
  ++next_wait_;
}

}  // namespace shardlens::runtime
