// How long NCCL's collectives take. Within a node, GPUs of nccl_tables.h have measured times, which
// are interpolated by size and number of GPUs.
//
// Beyond a node, and for other GPUs, it is NCCL's own model (its src/graph/tuning.cc): the fastest
// of ring and tree with the protocols LL, LL128 and Simple, each a latency of its steps and the
// bytes over the slowest link. A ring over nodes crosses as many adapters as a node has ranks in
// it, so ranks that share nodes have more of the network than those that have one each.
#pragma once

#include <cstdint>

#include "base/gpus.h"
#include "profiler/recording/work.h"

namespace shardlens::planner {

/// The places of a communicator's ranks.
struct RankLayout {
  int size = 1;
  int a_node = 1;  // the most that one node has

  int nodes() const { return (size + a_node - 1) / a_node; }
};
RankLayout ranks_of(const profiler::WorkCommunicator& communicator);

/// Returns the seconds of a collective.
double collective_seconds(const Gpu& gpu, profiler::CollectiveKind kind, int64_t bytes,
                          const RankLayout& ranks);

/// True if collectives among all these ranks of one node are measured.
bool has_measured_collectives(const Gpu& gpu, const RankLayout& ranks);

}  // namespace shardlens::planner
