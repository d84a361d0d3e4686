// Lets a CPU communicator serve buffers on a device, through pinned host memory: so several ranks
// can share one GPU, which NCCL refuses. Meant for tests of correctness: every operation has ended
// on the host when issuing returns, and its results are enqueued on the stream.
//
// Code that uses a result waits for the stream on the device. Receive buffers that the host
// communicator needs are kept here, so ReduceBuffers::receive is ignored.
#pragma once

#include <chrono>
#include <memory>
#include <span>
#include <string>

#include "base/fault.h"
#include "runtime/comm/communicator.h"

struct CUstream_st;  // what a cudaStream_t points to

namespace shardlens::runtime {

struct StagedOptions {
  int rank = 0;                   // in the world
  CUstream_st* stream = nullptr;  // a cudaStream_t of the current device; must outlive this
  std::chrono::nanoseconds deadline = std::chrono::seconds(60);  // for the stream to get here
};

class StagedCommunicator final : public Communicator {
 public:
  /// Stages for `host`, which must outlive this and which no other code may use.
  StagedCommunicator(Communicator& host, const StagedOptions& options);
  ~StagedCommunicator() override;

  int rank() const override { return host_.rank(); }
  int world_size() const override { return host_.world_size(); }
  Ticket all_gather(const Operation& operation, std::span<const GatherBuffer> buffers) override;
  Ticket reduce_scatter(const Operation& operation, const ReduceBuffers& buffers) override;
  Ticket all_reduce(const Operation& operation, void* data, int64_t numel, DType dtype) override;
  void sum(const Operation& operation, std::span<double> values) override;
  /// Does not block. Throws if the communicator is dead.
  void wait(Ticket ticket) override;
  void barrier(const Operation& operation) override;
  void abort(const std::string& reason) noexcept override { host_.abort(reason); }

 private:
  struct Staging;

  void check_alive() const;
  [[noreturn]] void fail(const Operation& operation, const std::string& what);
  /// Returns host memory for one operation, once the previous operation's copies are done with it.
  std::byte* stage(const Operation& operation, size_t bytes);
  /// Enqueues a copy in either direction.
  void copy(const Operation& operation, void* target, const void* source, size_t bytes);
  /// Returns when the stream has done all copies.
  void finish_copies(const Operation& operation);

  Communicator& host_;
  StagedOptions options_;
  std::unique_ptr<Staging> staging_;
  Ticket next_issue_ = 0;
  Ticket next_wait_ = 0;
  Problem failure_;  // nothing: alive
};

}  // namespace shardlens::runtime
