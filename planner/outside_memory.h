// Memory of a GPU that a rank takes beside LibTorch's caching allocator: CUDA's context, the code
// that libraries load, NCCL's buffers. A plan takes it from the capacity first.
//
// *Cold* figures come from what is published, and are the planner's weakest; a *calibration* from
// one recorded run on the same kind of machine replaces them.
#pragma once

#include <cstdint>
#include <string>

#include "planner/gpus.h"
#include "planner/schedule.h"

namespace shardlens::planner {

/// What one run on a GPU took.
struct Calibration {
  int64_t context_bytes = 0;
  int64_t modules_bytes = 0;
  int64_t nccl_bytes_a_communicator = 0;
  std::string source;  // a file
  std::string gpu{};   // the driver's name of it; empty: not known

  bool operator==(const Calibration&) const = default;
};

struct OutsideMemory {
  int64_t context_bytes = 0;
  int64_t modules_bytes = 0;  // code that libraries load, and what they keep for themselves
  int64_t nccl_bytes = 0;     // of all communicators
  int communicators = 0;
  std::string source;  // of a calibration; empty: cold

  int64_t total_bytes() const { return context_bytes + modules_bytes + nccl_bytes; }
  bool is_calibrated() const { return !source.empty(); }
};

/// NCCL's communicators of a rank that has peers, of which one channel or several use each.
/// `wanted`: what --communicators says.
int communicators_of(const Schedule& schedule, int64_t wanted);

/// Bytes of one communicator between `ranks` ranks, `stride` apart: a ring's and, within a node,
/// NVLink SHARP's buffers.
int64_t cold_nccl_bytes(const Gpu& gpu, const RankSet& ranks);

/// `calibration`: none for cold figures.
OutsideMemory outside_memory(const Gpu& gpu, const Schedule& schedule, int64_t communicators,
                             const Calibration* calibration);

/// From a recording (FILE.slp: what the driver gave to whom, what the device said was in use), or
/// FILE.json, an object with "context_bytes", "modules_bytes" and "nccl_bytes_a_communicator".
/// Throws std::invalid_argument where it says nothing of them.
Calibration read_calibration(const std::string& path);

}  // namespace shardlens::planner
