// The memory that the caching allocator has taken from the driver, as address ranges: while events
// pass by, or backwards from the end.
#pragma once

#include <cstdint>
#include <map>

namespace shardlens::profiler {

struct SegmentRange {
  uint64_t end = 0;
  int64_t stream = 0;
  bool expandable = false;  // ranges of it that touch are one
  bool small = false;       // which pool it serves
};

class SegmentRanges {
 public:
  /// Replaces what overlaps.
  void add(uint64_t begin, SegmentRange range);
  /// An expandable segment may lose any part; another goes whole.
  void remove(uint64_t begin, uint64_t end);

  const std::map<uint64_t, SegmentRange>& ranges() const { return ranges_; }

 private:
  std::map<uint64_t, SegmentRange> ranges_;  // by their first address
};

}  // namespace shardlens::profiler
