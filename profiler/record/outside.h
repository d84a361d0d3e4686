// Says what a recorded program takes of a GPU beside PyTorch's caching allocator.
#pragma once

#include <cstdint>
#include <string>

#include "profiler/record/record_options.h"
#include "profiler/record/record_verdict.h"
#include "profiler/report/report.h"

namespace shardlens::profiler {

/// Returns the bytes of the GPU that are in use outside PyTorch. For a real GPU they were measured
/// when most memory was in use. For a null device they are as --beside gives them, or an estimate:
/// what CUDA takes, and what NCCL takes for each communicator that the program made. If its process
/// ended without reporting these, the program is assumed to have made one of all ranks.
OutsideBytes outside_of(const RecordOptions& options, const RankReport& report,
                        const RecordFacts& facts);

}  // namespace shardlens::profiler
