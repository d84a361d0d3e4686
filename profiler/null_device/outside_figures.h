// The GPU memory that a program takes beside PyTorch's caching allocator: CUDA's context, the code
// that libraries load, NCCL's buffers. We use these figures if no recording from a GPU gives better
// ones; they are published, and each source is named beside its number.
#pragma once

#include <cstdint>

#include "base/gpus.h"

namespace shardlens::profiler {

struct CudaFigures {
  int64_t context_bytes = 0;
  int64_t modules_bytes = 0;  // code that libraries load, and their own memory

  int64_t total_bytes() const { return context_bytes + modules_bytes; }
};

/// Returns what one process takes.
CudaFigures published_cuda_figures();

/// Returns the bytes of one NCCL communicator between `ranks` ranks, of which `on_node` share a
/// node: a ring's buffers and, within a node, those of NVLink SHARP. A communicator that reaches
/// beyond the node has the same buffers, and more to send over the network.
int64_t published_nccl_bytes(const Gpu& gpu, int ranks, int on_node);

}  // namespace shardlens::profiler
