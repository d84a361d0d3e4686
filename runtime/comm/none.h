// Collectives without peers: the only rank of a world of one, or a *solo rank*, which plays rank r
// of W alone (memory and time are those of a real rank, numbers are not).
#pragma once

#include <span>

#include "runtime/comm/abort_note.h"
#include "runtime/comm/communicator.h"

namespace shardlens::runtime {

/// all_gather leaves the ranges of other ranks as they are; reduce_scatter copies this rank's
/// range of its own input; all_reduce and sum change nothing. Right for a world of one.
class NoneCommunicator final : public Communicator {
 public:
  /// Throws std::logic_error unless 0 <= rank < world_size.
  explicit NoneCommunicator(int rank = 0, int world_size = 1);

  int rank() const override { return rank_; }
  int world_size() const override { return world_size_; }
  Ticket all_gather(const Operation& operation, std::span<const GatherBuffer> buffers) override;
  Ticket reduce_scatter(const Operation& operation, const ReduceBuffers& buffers) override;
  Ticket all_reduce(const Operation& operation, void* data, int64_t numel,
                    planner::DType dtype) override;
  void sum(const Operation& operation, std::span<double> values) override;
  void wait(Ticket ticket) override;
  void barrier(const Operation& operation) override;
  void abort(const std::string& reason) noexcept override { note_.raise(reason); }

 private:
  Ticket issue(const Operation& operation);
  void check_abort(const Operation& operation) const;

  int rank_;
  int world_size_;
  Ticket next_issue_ = 0;
  Ticket next_wait_ = 0;
  AbortNote note_;
};

}  // namespace shardlens::runtime
