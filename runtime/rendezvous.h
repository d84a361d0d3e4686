// How the ranks of one host meet: a shared region with the board and, for the local communicator,
// its staging areas. Gloo's store is served by rank 0, which tells its port on the board; the id of
// an NCCL communicator is told there by the first of the ranks that it joins. A solo rank meets
// nobody.
// Ranks that another launcher has started meet in its store instead (meeting.h).
//
// A channel joins the ranks that the schedule says. What joins one rank alone has no transport.
#pragma once

#include <cstddef>
#include <memory>

#include "runtime/comm/board.h"
#include "runtime/comm/channels.h"
#include "runtime/job.h"
#include "runtime/streams.h"

namespace shardlens::runtime {

class Meeting;

/// What the launcher has to share between its ranks.
size_t region_bytes(const Job& job);

/// One rank's communicators and whatever they stand on.
class Links {
 public:
  virtual ~Links() = default;
  virtual Channels channels() const = 0;
};

/// Over a region of region_bytes, whose board the launcher has initialised. A communicator on a
/// device enqueues on the one of `streams` that its channel is scheduled on; job, region and
/// streams must outlive the links, as must the meeting of ranks that share no region. Returns when
/// all ranks have met. Throws CommunicationError naming who did not come.
std::unique_ptr<Links> join(const Job& job, int rank, void* region, const Streams& streams,
                            Meeting* meeting = nullptr);

}  // namespace shardlens::runtime
