// Declares what the files of the driver (libcuda) share.
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstdint>
#include <string>

#include "base/gpus.h"

namespace shardlens::profiler {

/// Describes the device that the environment names. If that is not possible, `gpu` is null and
/// `error` says why.
struct NullDevice {
  const Gpu* gpu = nullptr;
  int64_t capacity_bytes = 0;
  int64_t beside_bytes = 0;  // in use beside PyTorch from the start on
  bool counts_nccl = false;  // shardlens_null_take_nccl takes memory
  int count = 0;             // until shardlens_null_set_gpus sets another
  std::string error;
};

/// Returns the device; the environment is read once.
const NullDevice& null_device();

}  // namespace shardlens::profiler

/// Returns the capture into a graph that a stream is part of; 0: none. Only the runtime knows, and
/// sets this when it is loaded.
extern "C" std::atomic<uint64_t (*)(CUstream)> shardlens_null_captures;

/// Takes what NCCL is estimated to take for a communicator of `ranks` ranks, of which `on_node` are
/// on this node, where SHARDLENS_NULL_NCCL is 1. Safe on any thread, after cuInit.
extern "C" void shardlens_null_take_nccl(int ranks, int on_node);

/// Sets how many GPUs there are from now on, 1 to kMaxNullGpus: a program may set its world size
/// after something has asked the driver. Any other number is ignored. Safe on any thread.
extern "C" void shardlens_null_set_gpus(int count);
