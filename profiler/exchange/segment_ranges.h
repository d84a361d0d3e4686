// The memory that the caching allocator has reserved from the driver, as address ranges. It serves
// walks over the events, forwards or backwards from the end.
#pragma once

#include <cstdint>
#include <map>

#include "profiler/recording/blocks.h"

namespace shardlens::profiler {

struct SegmentRange {
  uint64_t end = 0;
  int64_t stream = 0;
  int32_t private_pool = kNoPrivatePool;
  bool expandable = false;  // its adjacent ranges are one segment
  bool small = false;       // serves the small pool; a joined range does if a part does
};

class SegmentRanges {
 public:
  /// Adds a range and removes the ranges that it overlaps.
  void add(uint64_t begin, SegmentRange range);
  /// Removes a range of addresses. An expandable segment keeps its parts outside the range; any
  /// other segment that overlaps is removed as a whole.
  void remove(uint64_t begin, uint64_t end);

  const std::map<uint64_t, SegmentRange>& ranges() const { return ranges_; }

 private:
  std::map<uint64_t, SegmentRange> ranges_;  // by their first address
};

}  // namespace shardlens::profiler
