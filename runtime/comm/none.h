// Implements collectives without peers: for the only rank of its set, or for a *solo rank*, which
// plays rank r of W by itself (memory and time are those of a real rank, values are not).
#pragma once

#include <span>

#include "planner/schedule/schedule.h"
#include "runtime/comm/board/abort_note.h"
#include "runtime/comm/communicator.h"

namespace shardlens::runtime {

/// Communicates without a transport: all_gather leaves the ranges of other ranks as they are;
/// reduce_scatter copies this rank's range of its own input, both in host memory; all_reduce and
/// sum change nothing. The results are right only for a world of one rank.
class NoneCommunicator final : public Communicator {
 public:
  /// Takes this rank's number in the world. Throws std::logic_error if it is below 0.
  explicit NoneCommunicator(int rank = 0, planner::RankSet ranks = {});

  int rank() const override { return ranks_.index_of(world_rank_); }
  int world_size() const override { return ranks_.size; }
  Ticket all_gather(const Operation& operation, std::span<const GatherBuffer> buffers) override;
  Ticket reduce_scatter(const Operation& operation, const ReduceBuffers& buffers) override;
  Ticket all_reduce(const Operation& operation, void* data, int64_t numel, DType dtype) override;
  void sum(const Operation& operation, std::span<double> values) override;
  void wait(Ticket ticket) override;
  void barrier(const Operation& operation) override;
  void abort(const std::string& reason) noexcept override { note_.raise(reason); }

 private:
  Ticket issue(const Operation& operation);
  void check_abort(const Operation& operation) const;

  int world_rank_;
  planner::RankSet ranks_;
  Ticket next_issue_ = 0;
  Ticket next_wait_ = 0;
  AbortNote note_;
};

}  // namespace shardlens::runtime
