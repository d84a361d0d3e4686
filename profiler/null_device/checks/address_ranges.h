// A set of addresses, kept as ranges that do not touch: the memory that is known, or that is freed.
// Standard library only; not thread-safe.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>

namespace shardlens::profiler {

/// Holds the addresses [begin, end).
struct AddressRange {
  uint64_t begin = 0;
  uint64_t end = 0;

  uint64_t bytes() const { return end - begin; }
  bool overlaps(const AddressRange& other) const {
    return std::max(begin, other.begin) < std::min(end, other.end);
  }
};

class AddressRanges {
 public:
  void add(AddressRange range);
  void remove(AddressRange range);

  bool overlap(AddressRange range) const;
  /// True if every address of `range` is in the set.
  bool cover(AddressRange range) const;

 private:
  std::map<uint64_t, uint64_t> ends_;  // by begin
};

}  // namespace shardlens::profiler
