// The rates of GPUs: those of data sheets, and the parts of them that kernels reach.
#pragma once

#include <cstdint>

#include "base/gpus.h"

namespace shardlens::profiler {
struct Header;
}

namespace shardlens::planner {

/// Rates from data sheets, in 10^12 operations and 10^9 bytes a second; links count one direction.
struct Rates {
  double fp32_tflops = 0;  // without tensor cores
  double half_tflops = 0;  // fp16, and bf16 where it is no slower, dense
  double memory_gbps = 0;
  double link_gbps = 0;     // to the other GPUs of the node
  double network_gbps = 0;  // a GPU's adapter
  double copy_gbps = 0;     // to the host
  bool has_bf16 = true;     // else bf16 is as slow as fp32
};

/// Returns the rates of a GPU, or of `threads` threads of a CPU if `gpu` is null.
Rates rates_of(const Gpu* gpu, int64_t threads);

/// Rates that large kernels reach on a GPU. Rates are in the units of Rates, parts are of its
/// rates.
struct Efficiency {
  double half_tflops = 0;         // of large bf16 products; fp16 where bf16 is slow
  double fp32_tflops = 0;         // of large fp32 products without tensor cores
  double memory = 0;              // a part of memory_gbps
  double l2_gbps = 0;             // what the L2 gives to streaming kernels
  double attention = 0;           // fused attention forward, a part of half_tflops above
  double attention_backward = 0;  // the same, backward
};
const Efficiency& reached_by(const Gpu& gpu);

/// Returns the GPU that a recording is of, or that was simulated; null if its rates are not known.
const Gpu* recorded_gpu(const profiler::Header& header);

/// The part of the link to the host that copies of pinned memory reach, and the rate that those of
/// pageable memory do: 54.3 GB/s and 16 GB/s on an H100 (tests/fixtures/gpu/h100/6-time.json).
constexpr double kPinnedCopies = 0.85;
constexpr double kPageableGbps = 14;

/// The seconds of the smallest kernel, until the next one on its stream starts. The shortest of
/// the products that gemm_tables.cpp has took 1.5 to 2.5 us in a graph.
constexpr double kKernelFloor = 2.0e-6;

}  // namespace shardlens::planner
