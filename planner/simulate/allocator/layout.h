// The segments and blocks that an allocator holds at one moment, as a snapshot of PyTorch's memory
// lists them. AllocatorModel can go on from there.
#pragma once

#include <cstdint>
#include <vector>

#include "planner/simulate/allocator/hashed_streams.h"
#include "profiler/recording/blocks.h"

namespace shardlens::planner {

struct BlockLayout {
  int64_t bytes = 0;  // given, after rounding
  int64_t requested_bytes = 0;
  bool is_held = false;  // by a caller, or kept for another stream; else free
};

struct SegmentLayout {
  uint64_t address = 0;
  StreamIndex stream = 0;
  profiler::Pool pool = profiler::Pool::small;
  std::vector<BlockLayout> blocks{};  // by address, without gaps
};

}  // namespace shardlens::planner
