// The GPU memory that a program takes beside PyTorch's caching allocator: CUDA's context, the code
// that libraries load, NCCL's buffers. We use these figures if neither --beside nor a recording
// from a GPU gives better ones; they are published, and each source is named beside its number.
#pragma once

#include <cstdint>
#include <string>

#include "base/gpus.h"

namespace shardlens::profiler {

/// The memory that a process takes to train on one GPU: the context, the code that libraries load,
/// and their own memory, without NCCL.
struct CudaFigure {
  int64_t bytes = 0;
  int64_t least_bytes = 0, most_bytes = 0;  // equal to `bytes` if sources do not differ
  std::string doubt = {};                   // empty: measured on this kind of GPU

  bool has_band() const { return least_bytes < most_bytes; }
};

/// Returns what was measured on this kind of GPU, else on one of its generation, else elsewhere.
CudaFigure cuda_figure(const Gpu& gpu);

/// Returns the bytes that are taken of this GPU beside PyTorch before there is a communicator.
inline int64_t bytes_beside_pytorch(const Gpu& gpu) { return cuda_figure(gpu).bytes; }

/// Returns the bytes of one NCCL communicator between `ranks` ranks, of which `on_node` share a
/// node: a ring's buffers and, within a node, those of NVLink SHARP. A communicator that reaches
/// beyond the node has the same buffers, and more to send over the network.
int64_t published_nccl_bytes(const Gpu& gpu, int ranks, int on_node);

}  // namespace shardlens::profiler
