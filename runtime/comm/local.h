// Implements collectives between ranks of one host through shared memory; the ranks are processes,
// or threads of one process (tests). Deterministic: sums run in rank order in fp32. It allocates
// nothing after construction, except for error texts, and when a gather has more buffers than any
// before it.
//
// [Note: protocol]
// Operations are numbered in order of issue. Operation n stages what other ranks need from this
// rank in area n % kDepth, then publishes n + 1. Its wait reads the peers' areas once they have
// published n + 1, then announces that it has consumed n + 1. An area is written again only after
// every peer has consumed the operation that used it kDepth operations before. So issuing copies
// and returns, and never touches the peers' buffers.
//
// Each rank makes one instance over the same zero-filled memory and with the same layout. One
// thread uses an instance at a time; abort may come from any.
#pragma once

#include <array>
#include <chrono>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/fault.h"
#include "planner/schedule/schedule.h"
#include "runtime/comm/board/board.h"
#include "runtime/comm/board/futex_word.h"
#include "runtime/comm/communicator.h"

namespace shardlens::runtime {

struct LocalLayout {
  planner::RankSet ranks;        // the ranks that share the memory
  int64_t max_gather_bytes = 0;  // the most bytes that one rank puts into one gather
  int64_t max_reduce_bytes = 0;  // largest full input of a reduce_scatter, or all_reduce

  bool operator==(const LocalLayout&) const = default;
};

struct LocalOptions {
  LocalLayout layout;
  int rank = 0;  // in the world
  std::chrono::nanoseconds deadline = std::chrono::seconds(60);
  std::function<std::string(int rank)> describe;  // says where a rank was last seen; may be empty
  std::optional<Board> board;  // its abort note stops this; none: the note in the memory does
};

class LocalCommunicator final : public Communicator {
 public:
  static constexpr int kDepth = 4;

  /// Returns how much memory is needed, a multiple of 64. The memory must also start at a multiple
  /// of 64.
  static size_t bytes(const LocalLayout& layout);

  /// Throws std::logic_error if the memory is in use with another layout or by another set of
  /// ranks.
  LocalCommunicator(void* memory, LocalOptions options);

  int rank() const override { return index_; }
  int world_size() const override { return options_.layout.ranks.size; }
  Ticket all_gather(const Operation& operation, std::span<const GatherBuffer> buffers) override;
  Ticket reduce_scatter(const Operation& operation, const ReduceBuffers& buffers) override;
  Ticket all_reduce(const Operation& operation, void* data, int64_t numel, DType dtype) override;
  void sum(const Operation& operation, std::span<double> values) override;
  void wait(Ticket ticket) override;
  void barrier(const Operation& operation) override;
  void abort(const std::string& reason) noexcept override { note_->raise(reason); }

 private:
  enum class Kind { gather, reduce_scatter, all_reduce, sum, barrier };
  struct Header;
  struct Counters;
  struct PendingOperation {
    Kind kind{};
    Operation operation;
    std::vector<GatherBuffer> gathers;
    ReduceBuffers reduce;  // all_reduce: input and output are the same
    std::span<double> values;
  };

  /// Makes room for one more operation and waits until its staging area is free.
  PendingOperation& begin(Kind kind, const Operation& operation, int64_t staged_bytes);
  Ticket publish_staged();
  /// Completes the oldest operation.
  void complete();
  void copy_gathered(const PendingOperation& pending);
  void reduce_staged(const PendingOperation& pending);
  void add_staged(const PendingOperation& pending);

  void wait_for_peers(const Operation& operation, FutexWord Counters::*counter, Ticket target);
  [[noreturn]] void fail(const std::string& what);
  void check_alive(const Operation& operation);
  std::byte* staging(Ticket ticket, int rank) const;

  LocalOptions options_;
  int index_;  // of this rank
  Header* header_;
  Counters* counters_;  // [world_size]
  std::byte* areas_;    // [kDepth][world_size][area_bytes_]
  size_t area_bytes_;
  AbortNote* note_;
  std::array<PendingOperation, kDepth> pending_;  // operation n at n % kDepth
  std::vector<const void*> sources_;              // [world_size]
  Ticket next_issue_ = 0;
  Ticket next_complete_ = 0;  // runs ahead of next_wait_ when more than kDepth are in flight
  Ticket next_wait_ = 0;
  Problem failure_;  // nothing: alive
};

}  // namespace shardlens::runtime
