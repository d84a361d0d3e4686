// Lets the ranks of one host meet: in a shared region with the board and, for the local
// communicator, its staging areas. Rank 0 serves Gloo's store, and tells its port on the board. The
// id of an NCCL communicator is told there by the first of the ranks that it joins. A solo rank
// meets no other.
// Ranks that another launcher has started meet in its store instead (rendezvous_store.h).
//
// A channel joins the ranks that the schedule says. A channel of one rank alone has no transport.
#pragma once

#include <cstddef>
#include <memory>

#include "runtime/comm/board/board.h"
#include "runtime/comm/channels.h"
#include "runtime/execute/streams.h"
#include "runtime/train/job.h"

namespace shardlens::runtime {

class RendezvousStore;

/// Returns the bytes that the launcher has to share between its ranks.
size_t region_bytes(const Job& job);

/// Owns one rank's communicators and all that they need.
class Links {
 public:
  virtual ~Links() = default;
  virtual Channels channels() const = 0;
};

/// Joins the other ranks. `region` has region_bytes, and the launcher has initialised its board. A
/// communicator on a device enqueues on the one of `streams` that its channel is scheduled on. Job,
/// region and streams must outlive the links, and so must `store`, which ranks have that share no
/// region. Returns when all ranks have met. Throws CommunicationError naming the rank that did not
/// come.
std::unique_ptr<Links> join(const Job& job, int rank, void* region, const Streams& streams,
                            RendezvousStore* store = nullptr);

}  // namespace shardlens::runtime
