// Lets the ranks of one host meet in a shared region that holds the board and, for the local
// communicator, its staging areas. Rank 0 serves Gloo's store, and writes the store's port on the
// board. The first of the ranks that an NCCL communicator joins writes the communicator's id there.
// A solo rank meets no other.
// Ranks that another launcher has started meet in its store instead (rendezvous_store.h).
//
// A channel joins the ranks that the schedule names. A channel of a single rank has no transport.
#pragma once

#include <cstddef>
#include <memory>

#include "runtime/comm/board/board.h"
#include "runtime/comm/channels.h"
#include "runtime/execute/streams.h"
#include "runtime/train/job.h"

namespace shardlens::runtime {

class RendezvousStore;

/// Returns how many bytes the launcher has to share between its ranks.
size_t region_bytes(const Job& job);

/// Owns one rank's communicators and all that they need.
class Links {
 public:
  virtual ~Links() = default;
  virtual Channels channels() const = 0;
};

/// Joins the other ranks. `region` has region_bytes, and the launcher has initialised its board. A
/// communicator on a device enqueues on the one of `streams` that its channel is scheduled on. Job,
/// region and streams must outlive the links, and so must `store`, which is for ranks that share no
/// region. Returns when all ranks have met. Throws CommunicationError naming the rank that did not
/// arrive.
std::unique_ptr<Links> join(const Job& job, int rank, void* region, const Streams& streams,
                            RendezvousStore* store = nullptr);

}  // namespace shardlens::runtime
