// How the ranks of one host meet: a shared region with the board and, for the local communicator,
// its staging areas. Gloo's store is served by rank 0, which tells its port on the board, as it
// does the ids of NCCL's communicators. A solo rank meets nobody.
#pragma once

#include <cstddef>
#include <memory>

#include "runtime/comm/board.h"
#include "runtime/comm/communicator.h"
#include "runtime/executor.h"
#include "runtime/job.h"

namespace shardlens::runtime {

/// What the launcher has to share between its ranks.
size_t region_bytes(const Job& job);

/// One rank's two communicators and whatever they stand on.
class Links {
 public:
  virtual ~Links() = default;
  virtual Channels channels() = 0;
};

/// Where a communicator on a device enqueues, as cudaStream_t; null on the CPU. Of the current
/// device. The same one twice where one communicator serves both channels.
struct DeviceStreams {
  void* gather = nullptr;
  void* reduce = nullptr;
};

/// Over a region of region_bytes, whose board the launcher has initialised. Returns when all ranks
/// have met. Throws CommunicationError naming who did not come.
std::unique_ptr<Links> join(const Job& job, int rank, void* region, DeviceStreams streams = {});

}  // namespace shardlens::runtime
