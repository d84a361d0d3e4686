#include "profiler/null_device/checks/address_ranges.h"

#include <algorithm>
#include <iterator>

namespace shardlens::profiler {

void AddressRanges::add(AddressRange range) {
  auto next = ends_.upper_bound(range.begin);
  if (next != ends_.begin() && std::prev(next)->second >= range.begin) --next;
  while (next != ends_.end() && next->first <= range.end) {
    range.begin = std::min(range.begin, next->first);
    range.end = std::max(range.end, next->second);
    next = ends_.erase(next);
  }
  ends_.emplace(range.begin, range.end);
}

void AddressRanges::remove(AddressRange range) {
  auto next = ends_.upper_bound(range.begin);
  if (next != ends_.begin() && std::prev(next)->second > range.begin) --next;
  while (next != ends_.end() && next->first < range.end) {
    const auto [begin, end] = *next;
    next = ends_.erase(next);
    if (begin < range.begin) ends_.emplace(begin, range.begin);
    if (end > range.end) ends_.emplace(range.end, end);
  }
}

bool AddressRanges::overlap(AddressRange range) const {
  const auto after = ends_.lower_bound(range.end);
  return after != ends_.begin() && std::prev(after)->second > range.begin;
}

bool AddressRanges::cover(AddressRange range) const {
  const auto after = ends_.upper_bound(range.begin);
  return after != ends_.begin() && std::prev(after)->second >= range.end;
}

}  // namespace shardlens::profiler
