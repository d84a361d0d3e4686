#include "profiler/exchange/segment_ranges.h"

#include <iterator>

namespace shardlens::profiler {

namespace {

bool continues(const SegmentRange& left, const SegmentRange& right) {
  return left.expandable && right.expandable && left.stream == right.stream &&
         left.private_pool == right.private_pool;
}

}  // namespace

void SegmentRanges::add(uint64_t begin, SegmentRange range) {
  if (range.end <= begin) return;
  remove(begin, range.end);
  const auto after = ranges_.find(range.end);
  if (after != ranges_.end() && continues(range, after->second)) {
    range.end = after->second.end;
    range.small = range.small || after->second.small;
    ranges_.erase(after);
  }
  const auto next = ranges_.lower_bound(begin);
  if (next != ranges_.begin()) {
    const auto before = std::prev(next);
    if (before->second.end == begin && continues(before->second, range)) {
      before->second.end = range.end;
      before->second.small = before->second.small || range.small;
      return;
    }
  }
  ranges_[begin] = range;
}

void SegmentRanges::remove(uint64_t begin, uint64_t end) {
  auto next = ranges_.upper_bound(begin);
  if (next != ranges_.begin()) --next;
  while (next != ranges_.end() && next->first < end) {
    const auto [first, range] = *next;
    if (range.end <= begin) {
      ++next;
      continue;
    }
    next = ranges_.erase(next);
    if (!range.expandable) continue;
    if (first < begin) {
      SegmentRange below = range;
      below.end = begin;
      ranges_[first] = below;
    }
    if (range.end > end) ranges_[end] = range;
  }
}

}  // namespace shardlens::profiler
