// Implements collectives between CPU ranks of one or several hosts over sockets, by c10d's
// ProcessGroupGloo. This header and its callers need no LibTorch; gloo.cpp is the only file that
// uses c10d.
//
// reduce_scatter sums in rank order in fp32, as over shared memory; all_reduce is a ring, whose
// order of summing depends on the place in the buffer, but not on the rank.
//
// After a failure the group is dead; a new one needs a new prefix. Operations in flight may write
// their buffers until the communicator is destroyed. If they have not ended a second later (an
// abort while a peer is stopped), they may write even after that, and the process must only end
// then.
//
// c10d's own lines on standard error are off, unless TORCH_CPP_LOG_LEVEL is set.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "planner/schedule/schedule.h"
#include "runtime/comm/board/board.h"
#include "runtime/comm/communicator.h"

namespace shardlens::runtime {

struct GlooStoreOptions {
  std::string host = "127.0.0.1";  // of the rank that serves
  uint16_t port = 0;               // serve: 0 takes a free one
  int rank = 0;
  int world_size = 1;
  std::string prefix{};  // of every key, so that two runs may share a store; empty: none
  std::chrono::milliseconds deadline = std::chrono::seconds(60);
};

/// Lets all ranks meet in a c10d TCPStore. It must outlive the communicators made from it. Any
/// thread may use it; calls are served one at a time.
class GlooStore {
 public:
  /// Opens a store. If its host is a loopback address, only this machine can reach the store.
  static std::unique_ptr<GlooStore> serve(const GlooStoreOptions& options);
  /// Connects to a store. This and serve throw CommunicationError with host, port and rank.
  static std::unique_ptr<GlooStore> connect(const GlooStoreOptions& options);

  virtual ~GlooStore() = default;
  virtual uint16_t port() const = 0;
  /// Returns a store over the same connection, with `prefix` before all names.
  virtual std::unique_ptr<GlooStore> below(const std::string& prefix) const = 0;

  // These keep words for all ranks, under any name. They return at once, and throw
  // CommunicationError if the store is gone or does not answer within the deadline.

  virtual void set(const std::string& key, const std::string& value) = 0;
  /// Returns nothing if no rank has set the key yet.
  virtual std::optional<std::string> find(const std::string& key) = 0;
  /// Sets the key unless it is set, and returns its value. Throws std::logic_error if the value is
  /// empty.
  virtual std::string set_first(const std::string& key, const std::string& value) = 0;
  /// Adds to a count that begins at 0, and returns the sum.
  virtual int64_t add(const std::string& key, int64_t amount) = 0;
};

struct GlooOptions {
  std::string prefix;  // one for each channel and each attempt: "gather", "reduce"
  int rank = 0;        // in the world
  planner::RankSet ranks;
  std::chrono::milliseconds deadline = std::chrono::seconds(60);
  std::optional<Board> board;  // its abort note stops every wait; none: only abort() does
};

/// Meets the other ranks of the set. Throws CommunicationError if one does not come within the
/// deadline.
std::unique_ptr<Communicator> make_gloo(GlooStore& store, const GlooOptions& options);

}  // namespace shardlens::runtime
