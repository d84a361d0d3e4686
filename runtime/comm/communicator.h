// Declares collectives between ranks, all of the world's or a set of them, as the schedule needs.
// Standard library only: buffers are plain memory, so the shared-memory communicator is tested
// without LibTorch.
//
// A communicator numbers the ranks that it joins from 0 (rank, world_size), and buffers follow that
// order. Errors name ranks by their number in the world.
//
// Every rank issues the same operations in the same order. If the transport can, issuing returns a
// ticket at once; buffers belong to the operation until wait(ticket) returns. Tickets of one
// communicator are waited for in the order of issue. One thread uses a communicator at a time.
// On a device, issuing enqueues on one of the caller's streams. Then wait does not block, and
// buffers belong to the operation until the stream is past it (nccl.h, staged.h).
//
// Every wait has a deadline and a name. A wait that fails (deadline, dead peer, abort) throws
// CommunicationError, whose text names rank, step and operation; the communicator is then dead:
// every later call throws the same error.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/check.h"
#include "base/dtype.h"
#include "base/fault.h"

namespace shardlens::runtime {

struct CommunicationError : Failure {
  explicit CommunicationError(const std::string& what, Fault fault = Fault::connection,
                              int rank = -1)
      : Failure(fault, what, rank) {}
};

/// Names an operation for error messages: "step 37, REDUCE_SCATTER of block3 bucket 1".
struct Operation {
  int64_t step = 0;
  std::string_view kind{};   // static text: "ALL_GATHER", "BARRIER"
  std::string_view group{};  // empty: none; must outlive the wait
  int bucket = -1;
};

/// Holds world_size equal ranges of `numel / world_size` elements; rank r owns the r-th.
struct GatherBuffer {
  void* data = nullptr;
  int64_t numel = 0;
  DType dtype{};
};

/// Throws std::logic_error unless each of the ranks has an equal range of every buffer.
inline void check_ranges(std::span<const GatherBuffer> buffers, int world_size) {
  for (const GatherBuffer& buffer : buffers) {
    check(buffer.numel >= 0 && buffer.numel % world_size == 0,
          "all_gather: a buffer is not a multiple of the world size");
  }
}

struct ReduceBuffers {
  const void* input = nullptr;  // [world_size x shard_numel]
  void* output = nullptr;       // [shard_numel], same dtype; may be this rank's range of input
  void* receive = nullptr;      // [world_size x shard_numel] scratch, only where needs_receive()
  int64_t shard_numel = 0;
  DType dtype{};
};

using Ticket = int64_t;

class Communicator {
 public:
  virtual ~Communicator() = default;

  /// These return this rank's index among the ranks that the communicator joins, and how many those
  /// are.
  virtual int rank() const = 0;
  virtual int world_size() const = 0;

  /// Gathers in place: the caller has filled this rank's range of each buffer, and wait() writes
  /// the others.
  virtual Ticket all_gather(const Operation& operation, std::span<const GatherBuffer> buffers) = 0;

  /// Writes to output the mean over ranks of this rank's range of input; sums in rank order, in
  /// fp32.
  virtual Ticket reduce_scatter(const Operation& operation, const ReduceBuffers& buffers) = 0;

  /// Replaces `data` by its mean over ranks, with fp32 accumulation; the same bits on every rank.
  virtual Ticket all_reduce(const Operation& operation, void* data, int64_t numel, DType dtype) = 0;

  /// Replaces a few doubles (metrics) by their sums over ranks; returns when done.
  virtual void sum(const Operation& operation, std::span<double> values) = 0;

  virtual void wait(Ticket ticket) = 0;
  virtual void barrier(const Operation& operation) = 0;

  /// Makes every present and later wait of every rank throw `reason`, if the transport can. Any
  /// thread may call it.
  virtual void abort(const std::string& reason) noexcept = 0;
};

}  // namespace shardlens::runtime
