// The measured times of NCCL's collectives that planner/time/collectives.h interpolates.
#pragma once

#include <array>
#include <span>
#include <string_view>

#include "profiler/recording/work.h"

namespace shardlens::planner {

/// The microseconds of one collective among GPUs of one node, from 1 KiB on, each size four times
/// the one before.
struct NcclTable {
  std::string_view gpu;
  profiler::CollectiveKind kind{};
  int gpus = 0;
  std::array<double, 10> microseconds{};
};

std::span<const NcclTable> nccl_tables();

}  // namespace shardlens::planner
