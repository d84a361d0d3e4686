// Does the arithmetic of every reduction: sums in rank order, in fp32, divided and rounded once.
// Transports share it, so that a run gives the same bits over shared memory and over sockets.
#pragma once

#include <cstdint>
#include <span>

#include "base/dtype.h"

namespace shardlens::runtime {

/// Writes output[i] = (sources[0][i] + sources[1][i] + ...) / sources.size(). Each source and
/// output is [numel] of `dtype`; output may be one of the sources, and may not overlap them
/// otherwise.
void mean_in_rank_order(std::span<const void* const> sources, void* output, int64_t numel,
                        DType dtype);

/// Divides elements that hold the sum over `ranks`, in fp32, and rounds them into `output` of
/// `dtype`.
void divide_by_ranks(const float* sum, void* output, int64_t numel, DType dtype, int ranks);

/// Converts to fp32, exactly.
void widen(const void* input, float* output, int64_t numel, DType dtype);

}  // namespace shardlens::runtime
