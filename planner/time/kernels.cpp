#include "planner/time/kernels.h"

#include <algorithm>
#include <cmath>
#include <string_view>

#include "planner/time/operators.h"
#include "planner/time/products.h"
#include "planner/time/rates.h"

namespace shardlens::planner {

namespace {

using profiler::CopyKind;
using profiler::NumberType;
using profiler::OperatorCall;
using profiler::Work;
using profiler::WorkTrace;

// Numbers a second that a multiprocessor takes one by one: an H100 that made fp32 of bf16 took
// 313 x 10^9 (6-time.json).
constexpr double kSingleNumbers = 2.4e9;
constexpr double kCopyLatency = 8e-6;         // of one between host and GPU
constexpr double kBytesAThread = 2 * 16;      // of a kernel of which only the grid is known
constexpr double kConvolutionReached = 0.75;  // of a product of its sizes
constexpr double kAttentionTile = 128;        // queries of one block

double threads_of(const profiler::Launch& launch) {
  double threads = 1;
  for (const uint32_t size : launch.grid) threads *= std::max(1U, size);
  for (const uint32_t size : launch.block) threads *= std::max(1U, size);
  return threads;
}

/// Narrow heads feed the tensor cores less, wide ones spill; fp32 has no tensor cores there.
double attention_tflops(const Gpu& gpu, const Attention& attention) {
  const Efficiency& reached = reached_by(gpu);
  if (attention.type == NumberType::fp32) return reached.fp32_tflops * 0.6;
  const double part = attention.is_backward ? reached.attention_backward : reached.attention;
  const double width = attention.width <= 64 ? 0.7 : attention.width <= 128 ? 1 : 0.8;
  return reached.half_tflops * part * width;
}

double convolution_seconds(const Gpu& gpu, const Convolution& convolution) {
  const bool is_fp32 = convolution.type == NumberType::fp32;
  const profiler::Product product{.m = static_cast<int64_t>(convolution.columns),
                                  .n = static_cast<int64_t>(convolution.rows),
                                  .k = static_cast<int64_t>(convolution.depth),
                                  .batch = static_cast<int64_t>(convolution.groups),
                                  .a = convolution.type,
                                  .b = convolution.type,
                                  .c = convolution.type,
                                  .compute = is_fp32 ? NumberType::tf32 : NumberType::fp32};
  const double memory = streaming_seconds(gpu, convolution.bytes);
  if (convolution.groups > 1) return memory * 1.5;  // few numbers for each filter
  return std::max(product_seconds(gpu, product) / kConvolutionReached, memory);
}

double flops_of(const Convolution& sizes) {
  return 2 * sizes.rows * sizes.columns * sizes.depth * sizes.groups;
}

}  // namespace

double attention_seconds(const Gpu& gpu, const Attention& attention) {
  const double blocks =
      attention.batch * attention.heads * std::ceil(attention.queries / kAttentionTile);
  const double waves = blocks / gpu.sm_count;
  const double idle = std::ceil(waves) / std::max(waves, 1e-9);
  // A block on the diagonal computes all of its tile, and blocks end at different times.
  const double diagonal = attention.is_causal
                              ? 1 + 4 * kAttentionTile / std::max(attention.queries, kAttentionTile)
                              : 1;
  const double seconds = attention.flops() / (attention_tflops(gpu, attention) * 1e12);
  return kKernelFloor + seconds * std::min(diagonal, 2.0) * std::min(idle, 8.0);
}

double streaming_seconds(const Gpu& gpu, double bytes) {
  const auto l2 = static_cast<double>(gpu.l2_bytes);
  const double hit = std::clamp(2 - 2 * bytes / l2, 0.0, 1.0);
  const double memory = rates_of(&gpu, 1).memory_gbps * reached_by(gpu).memory;
  return kKernelFloor + bytes * 1e-9 * (hit / reached_by(gpu).l2_gbps + (1 - hit) / memory);
}

double copy_seconds(const Gpu& gpu, const profiler::Copy& copy) {
  const auto bytes = static_cast<double>(copy.bytes);
  if (copy.kind == CopyKind::on_device) return streaming_seconds(gpu, 2 * bytes);
  if (copy.kind == CopyKind::on_host) return 0;
  const double pinned = rates_of(&gpu, 1).copy_gbps * kPinnedCopies;
  const double gbps = copy.is_pageable ? std::min(pinned, kPageableGbps) : pinned;
  return kCopyLatency + bytes / (gbps * 1e9);
}

Cost kernel_cost(const Gpu& gpu, const WorkTrace& trace, const Work& work, double share) {
  const OperatorCall& call = trace.calls[work.call];
  const std::string_view name = trace.strings[call.name];
  if (const auto attention = attention_of(name, call)) {
    // Its backward has small kernels before and after the large one.
    const bool is_large = threads_of(work.launch) >= 128 || work.launch.grid[0] == 0;
    if (share > 0 && is_large) {
      return {attention_seconds(gpu, *attention) * share, attention->flops() * share,
              WorkClass::attention};
    }
  }
  if (const auto convolution = convolution_of(name, call);
      convolution && work.kind == profiler::WorkKind::library_call) {
    return {convolution_seconds(gpu, *convolution), flops_of(*convolution),
            WorkClass::convolutions};
  }
  if (!name.empty()) {
    const bool is_elementwise =
        trace.strings[work.name].find("elementwise_kernel") != std::string::npos;
    if (is_elementwise) share /= launches_of(call);
    const double streaming = streaming_seconds(gpu, operator_bytes(name, call) * share);
    const double single =
        kKernelFloor + single_numbers(name, call) * share / (kSingleNumbers * gpu.sm_count);
    return {.seconds = std::max(streaming, single), .work_class = WorkClass::kernels};
  }
  return {.seconds = streaming_seconds(gpu, threads_of(work.launch) * kBytesAThread),
          .work_class = WorkClass::other_kernels};
}

}  // namespace shardlens::planner
