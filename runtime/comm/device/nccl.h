// Implements collectives between GPUs, by NCCL on one of the caller's streams. Issuing enqueues;
// code that uses the result waits for the stream on the device. So wait(ticket) does not block: it
// only throws if an operation has failed. sum and barrier do wait on the host.
//
// No call into NCCL waits for peers (blocking = 0): while one is in progress its state is polled
// until it is done, and the watchdog ends it at the deadline, as it ends operations on the device.
// After a failure the communicator is dead and the process should end: kernels may still write
// buffers.
//
// NCCL computes means: it chooses the order of summing, the same in every run on one machine.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "planner/schedule/schedule.h"
#include "runtime/comm/board/abort_note.h"
#include "runtime/comm/board/board.h"
#include "runtime/comm/communicator.h"
#include "runtime/comm/device/nccl_api.h"

namespace shardlens::runtime {

class Watchdog;

/// Returns NCCL's number of a dtype.
NcclType nccl_type(DType dtype);

struct NcclOptions {
  std::string name{};  // of the channel, for errors: "gather"
  NcclUniqueId id{};   // the same on every rank of the set, different for each communicator
  int rank = 0;        // in the world
  planner::RankSet ranks{};
  CUstream_st* stream = nullptr;  // a cudaStream_t of the current device; must outlive this
  std::chrono::nanoseconds deadline = std::chrono::seconds(60);
  std::optional<Board> board{};  // its abort note stops this; none: only abort() does
  const NcclApi* api = nullptr;  // null: the library's
};

/// Runs collectives by NCCL. For sums, it takes 512 bytes from LibTorch's allocator, on the current
/// stream.
class NcclCommunicator final : public Communicator {
 public:
  /// Meets the other ranks of the set. Throws CommunicationError if one does not come within the
  /// deadline, std::runtime_error if NCCL is missing.
  explicit NcclCommunicator(const NcclOptions& options);
  /// Waits a few seconds at most for operations in flight, then aborts them.
  ~NcclCommunicator() override;

  int rank() const override { return options_.ranks.index_of(options_.rank); }
  int world_size() const override { return options_.ranks.size; }
  Ticket all_gather(const Operation& operation, std::span<const GatherBuffer> buffers) override;
  Ticket reduce_scatter(const Operation& operation, const ReduceBuffers& buffers) override;
  Ticket all_reduce(const Operation& operation, void* data, int64_t numel, DType dtype) override;
  void sum(const Operation& operation, std::span<double> values) override;
  /// Throws if an operation has failed. Tickets may be waited for in any order.
  void wait(Ticket ticket) override;
  void barrier(const Operation& operation) override;
  void abort(const std::string& reason) noexcept override;

 private:
  class Link;
  struct SumBuffers;

  /// Calls call() -> NcclResult, waits until NCCL has enqueued the operation, and marks the place
  /// in the stream.
  template <class Call>
  size_t hand_over(const Operation& operation, Call call);
  template <class Enqueue>
  Ticket issue(const Operation& operation, Enqueue enqueue);
  void sum_some(const Operation& operation, std::span<double> values);

  NcclOptions options_;
  AbortNote own_note_;
  std::unique_ptr<Link> link_;
  std::unique_ptr<SumBuffers> sums_;
  std::unique_ptr<Watchdog> watchdog_;  // ends first: it looks at the link
  Ticket next_issue_ = 0;
  int64_t last_step_ = 0;
};

}  // namespace shardlens::runtime
