#include "profiler/report/reserved_parts.h"

#include <algorithm>
#include <functional>
#include <map>
#include <span>

namespace shardlens::profiler {

namespace {

constexpr uint32_t kPendingPlace = UINT32_MAX;

/// Free memory between used blocks: a request gets it as a whole.
struct Gap {
  uint64_t begin = 0;
  uint64_t end = 0;
  int64_t bytes() const { return static_cast<int64_t>(end - begin); }
};

uint64_t end_of(const ReservedSegment& segment) {
  return segment.address + static_cast<uint64_t>(segment.bytes);
}
uint64_t end_of(const UsedBlock& block) {
  return block.address + static_cast<uint64_t>(block.given_bytes);
}

bool continues(const ReservedSegment& left, const ReservedSegment& right) {
  return left.expandable && right.expandable && end_of(left) == right.address &&
         left.stream == right.stream && left.pool == right.pool &&
         left.private_pool == right.private_pool;
}

/// Sorts segments by address and joins ranges of one expandable segment.
std::vector<ReservedSegment> joined(std::vector<ReservedSegment> segments) {
  std::ranges::sort(segments, {}, &ReservedSegment::address);
  std::vector<ReservedSegment> all;
  for (const ReservedSegment& segment : segments) {
    if (!all.empty() && continues(all.back(), segment)) {
      all.back().bytes += segment.bytes;
    } else {
      all.push_back(segment);
    }
  }
  return all;
}

std::vector<Gap> gaps_of(const ReservedSegment& segment, std::span<const UsedBlock> blocks) {
  std::vector<Gap> gaps;
  uint64_t at = segment.address;
  for (const UsedBlock& block : blocks) {
    if (block.address > at) gaps.push_back({at, block.address});
    at = std::max(at, end_of(block));
  }
  if (end_of(segment) > at) gaps.push_back({at, end_of(segment)});
  return gaps;
}

/// Returns the largest request that a free piece serves.
int64_t fit_of(Pool pool, int64_t bytes) {
  if (pool == Pool::small) return std::min(kSmallRequestBytes, bytes);
  return bytes > kSmallRequestBytes ? bytes : 0;  // the other pool serves smaller requests
}

class Accountant {
 public:
  explicit Accountant(const ReservedRequest& request)
      : request_(request),
        rounded_(request.bytes > 0 ? rounded_request(request.bytes) : 0),
        pool_(pool_of(rounded_)) {}

  ReservedParts run(const std::vector<ReservedSegment>& segments,
                    const std::vector<UsedBlock>& blocks) {
    size_t next = 0;
    for (const ReservedSegment& segment : segments) {
      for (; next < blocks.size() && blocks[next].address < segment.address; ++next) {
        parts_.unplaced += blocks[next].given_bytes;
      }
      const size_t first = next;
      while (next < blocks.size() && blocks[next].address < end_of(segment)) ++next;
      take(segment, std::span(blocks).subspan(first, next - first));
    }
    for (; next < blocks.size(); ++next) parts_.unplaced += blocks[next].given_bytes;
    return finished();
  }

 private:
  void take(const ReservedSegment& segment, std::span<const UsedBlock> blocks) {
    parts_.reserved += segment.bytes;
    for (const UsedBlock& block : blocks) count(block);
    const bool is_private = segment.private_pool != kNoPrivatePool;
    const bool serves =
        segment.stream == request_.stream && segment.private_pool == request_.private_pool;
    const std::vector<Gap> gaps = gaps_of(segment, blocks);
    for (const Gap& gap : gaps) {
      if (serves)
        parts_.largest_fit = std::max(parts_.largest_fit, fit_of(segment.pool, gap.bytes()));
      take_gap(segment, gap);
    }
    if (is_private) return take_pool(segment, gaps, blocks);
    if (segment.stream == request_.stream && !blocks.empty()) take_holders(segment, gaps, blocks);
  }

  void count(const UsedBlock& block) {
    if (block.is_pending) {
      parts_.pending += block.given_bytes;
      return;
    }
    parts_.requested += block.asked_bytes;
    parts_.rounding += block.given_bytes - block.asked_bytes;
  }

  void take_gap(const ReservedSegment& segment, const Gap& gap) {
    const int64_t returnable = returnable_of(segment, gap);
    if (segment.private_pool != kNoPrivatePool) {
      return add(parts_.private_pools, segment, gap, gap.bytes(), 0);
    }
    if (segment.stream != request_.stream) {
      return add(parts_.other_streams, segment, gap, gap.bytes(), returnable);
    }
    add(parts_.whole, segment, gap, returnable, returnable);
    add(parts_.held, segment, gap, gap.bytes() - returnable, 0);
  }

  /// Returns the bytes of a gap that the allocator gives back to the driver when the device is
  /// full: a whole segment, or the whole pages of an expandable one.
  static int64_t returnable_of(const ReservedSegment& segment, const Gap& gap) {
    if (!segment.expandable) return gap.bytes() == segment.bytes ? gap.bytes() : 0;
    const auto page = static_cast<uint64_t>(page_bytes(segment.pool));
    const uint64_t first = (gap.begin - segment.address + page - 1) / page * page;
    const uint64_t last = (gap.end - segment.address) / page * page;
    return last > first ? static_cast<int64_t>(last - first) : 0;
  }

  void add(FreePieces& part, const ReservedSegment& segment, const Gap& gap, int64_t bytes,
           int64_t returnable) const {
    if (bytes == 0) return;
    part.bytes += bytes;
    part.returnable += returnable;
    ++part.pieces;
    part.largest = std::max(part.largest, gap.bytes());
    if (rounded_ == 0) return;
    if (gap.bytes() < rounded_) {
      part.too_small += bytes;
    } else if (segment.pool != pool_) {
      part.other_sizes += bytes;
    }
  }

  void take_pool(const ReservedSegment& segment, const std::vector<Gap>& gaps,
                 std::span<const UsedBlock> blocks) {
    PoolSum& pool = pools_[segment.private_pool];
    pool.reserved += segment.bytes;
    for (const Gap& gap : gaps) pool.free += gap.bytes();
    for (const UsedBlock& block : blocks) {
      if (!block.is_pending) pool.places[block.place] += block.given_bytes;
    }
  }

  // --- what holds free memory --------------------------------------------------------------------

  /// Goes through the parts of a segment that are given back as a whole, and are not free as one.
  void take_holders(const ReservedSegment& segment, const std::vector<Gap>& gaps,
                    std::span<const UsedBlock> blocks) {
    if (!segment.expandable) return take_held({segment.address, end_of(segment)}, blocks);
    const auto page = static_cast<uint64_t>(page_bytes(segment.pool));
    uint64_t done = segment.address;  // the end of the last page that was taken
    for (const Gap& gap : gaps) {
      for (const uint64_t inside : {gap.begin, gap.end - 1}) {
        const uint64_t begin = segment.address + (inside - segment.address) / page * page;
        const uint64_t end = std::min(begin + page, end_of(segment));
        const bool is_whole = gap.begin <= begin && end <= gap.end;
        if (begin < done || is_whole) continue;
        take_held({begin, end}, blocks);
        done = end;
      }
    }
  }

  /// Adds one such part to what its used blocks hold.
  void take_held(const Gap& part, std::span<const UsedBlock> blocks) {
    const auto first = std::ranges::upper_bound(blocks, part.begin, {},
                                                [](const UsedBlock& one) { return end_of(one); });
    const auto last = std::ranges::lower_bound(blocks, part.end, {}, &UsedBlock::address);
    std::vector<uint32_t> places;
    int64_t used = 0;
    for (const UsedBlock& block : std::span(first, last)) {
      used += static_cast<int64_t>(std::min(part.end, end_of(block)) -
                                   std::max(part.begin, block.address));
      places.push_back(block.is_pending ? kPendingPlace : block.place);
    }
    if (used >= part.bytes()) return;
    std::ranges::sort(places);
    places.erase(std::unique(places.begin(), places.end()), places.end());
    std::erase(places, kPendingPlace);
    if (places.size() > kMostHolderPlaces) places.clear();
    Holding& holding = holders_[places];
    holding.holder.places = places;
    holding.holder.used += used;
    holding.holder.free += part.bytes() - used;
    ++holding.holder.segments;
    for (const UsedBlock& block : std::span(first, last)) holding.add(block);
  }

  ReservedParts finished() {
    for (auto& [number, sum] : pools_) {
      PrivatePool pool{.number = number, .reserved = sum.reserved, .free = sum.free, .places = {}};
      for (const auto& [place, bytes] : sum.places) pool.places.push_back(place);
      std::ranges::stable_sort(pool.places, std::greater(),
                               [&](uint32_t place) { return sum.places.at(place); });
      parts_.pools.push_back(std::move(pool));
    }
    std::ranges::stable_sort(parts_.pools, std::greater(), &PrivatePool::reserved);
    for (auto& [places, holding] : holders_) parts_.holders.push_back(std::move(holding.holder));
    std::ranges::stable_sort(parts_.holders, std::greater(), &SegmentHolder::free);
    return std::move(parts_);
  }

  struct PoolSum {
    int64_t reserved = 0;
    int64_t free = 0;
    std::map<uint32_t, int64_t> places;  // bytes given
  };
  struct Holding {
    SegmentHolder holder;
    uint64_t last = 0;  // the address of the last block that was counted: blocks come in order

    void add(const UsedBlock& block) {
      if (holder.blocks > 0 && block.address <= last) return;
      if (holder.blocks == 0) holder.oldest_step = holder.youngest_step = block.step;
      holder.oldest_step = std::min(holder.oldest_step, block.step);
      holder.youngest_step = std::max(holder.youngest_step, block.step);
      ++holder.blocks;
      last = block.address;
    }
  };

  const ReservedRequest request_;
  const int64_t rounded_;
  const Pool pool_;  // of the request
  ReservedParts parts_;
  std::map<int32_t, PoolSum> pools_;
  std::map<std::vector<uint32_t>, Holding> holders_;
};

}  // namespace

ReservedParts reserved_parts(std::vector<ReservedSegment> segments, std::vector<UsedBlock> blocks,
                             const ReservedRequest& request) {
  std::ranges::sort(blocks, {}, &UsedBlock::address);
  return Accountant(request).run(joined(std::move(segments)), blocks);
}

}  // namespace shardlens::profiler
