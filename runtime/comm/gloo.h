// Collectives between CPU ranks of one or several hosts over sockets, by c10d's ProcessGroupGloo.
// This header and its callers need no LibTorch; gloo.cpp is the one file that touches c10d.
//
// Sums run in rank order in fp32 with reduce_scatter, as over shared memory; all_reduce is a ring,
// whose order of summing differs with the place in the buffer, but not with the rank.
//
// After a failure the group is dead; a new one needs a new prefix. Operations in flight may write
// their buffers until the communicator is destroyed; where they have not ended a second later
// (abort while a peer is stopped) even beyond, and the process must then only end.
//
// c10d's own lines on standard error are off, unless TORCH_CPP_LOG_LEVEL is set.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "planner/schedule.h"
#include "runtime/comm/board.h"
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

/// The rendezvous of all ranks, a c10d TCPStore. It must outlive the communicators made from it.
/// Any thread may use it; one at a time is served.
class GlooStore {
 public:
  /// A store on a loopback host can be reached from this machine only.
  static std::unique_ptr<GlooStore> serve(const GlooStoreOptions& options);
  /// Both throw CommunicationError with host, port and rank.
  static std::unique_ptr<GlooStore> connect(const GlooStoreOptions& options);

  virtual ~GlooStore() = default;
  virtual uint16_t port() const = 0;

  // Words for all ranks, under any name. All return at once, and throw CommunicationError where the
  // store is gone or does not answer within the deadline.

  virtual void set(const std::string& key, const std::string& value) = 0;
  /// Nothing: nobody has set it yet.
  virtual std::optional<std::string> find(const std::string& key) = 0;
  /// The value of whoever came first stays; returns that. Throws std::logic_error for an empty one.
  virtual std::string set_first(const std::string& key, const std::string& value) = 0;
  /// To a count that begins at 0; returns the sum.
  virtual int64_t add(const std::string& key, int64_t amount) = 0;
};

struct GlooOptions {
  std::string prefix;  // one for each channel and each attempt: "gather", "reduce"
  int rank = 0;        // in the world
  planner::RankSet ranks;
  std::chrono::milliseconds deadline = std::chrono::seconds(60);
  std::optional<Board> board;  // an abort note that stops every wait; none: only abort() does
};

/// Meets the other ranks of the set. Throws CommunicationError where one does not come within the
/// deadline.
std::unique_ptr<Communicator> make_gloo(GlooStore& store, const GlooOptions& options);

}  // namespace shardlens::runtime
