// A simple caching allocator that leaves events as LibTorch's would: every question is answered by
// walking through all blocks. Sizes are written out, not taken from the code under test.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "profiler/recording/profile.h"

namespace shardlens::tests {

class ModelAllocator {
 public:
  using EventSink = std::function<void(profiler::Event)>;

  ModelAllocator(bool expandable, EventSink take)
      : expandable_(expandable), take_(std::move(take)) {}

  /// Fills in the address and size; the other fields of `event` stay. Returns the address.
  uint64_t alloc(profiler::Event event) {
    const int64_t rounded = event.value < 512 ? 512 : (event.value + 511) / 512 * 512;
    const bool small = rounded <= 1 << 20;
    auto [segment, address] = best_fit(rounded, small, event.stream);
    if (segment == nullptr) {
      grow(rounded, small, event.stream);
      std::tie(segment, address) = best_fit(rounded, small, event.stream);
    }
    Block& block = segment->at(address);
    const int64_t rest = block.bytes - rounded;
    if (expandable_ || small ? rest >= 512 : rest > 1 << 20) {
      block.bytes = rounded;
      segment->emplace(address + static_cast<uint64_t>(rounded), Block{.bytes = rest});
    }
    block.used = true;
    block.asked = event.value;
    event.address = address;
    event.kind = profiler::EventKind::alloc;
    event.space = profiler::Space::device;
    take_(event);
    return address;
  }

  void free(uint64_t address) {
    for (auto& [key, segment] : segments_) {
      const auto found = segment.blocks.find(address);
      if (found == segment.blocks.end()) continue;
      found->second.used = false;
      merge(segment.blocks);
      take_({.address = address, .kind = profiler::EventKind::free});
      return;
    }
  }

  /// Returns free memory to the driver: whole segments, and the whole pages at the end of
  /// expandable ones.
  void empty_cache() {
    for (auto it = segments_.begin(); it != segments_.end();) {
      Segment& segment = it->second;
      const int64_t bytes = returnable(segment);
      if (bytes > 0) {
        const auto last = std::prev(segment.blocks.end());
        last->second.bytes -= bytes;
        const uint64_t from = last->first + static_cast<uint64_t>(last->second.bytes);
        emit_segment(profiler::EventKind::free, from, bytes, segment.stream);
        if (last->second.bytes == 0) segment.blocks.erase(last);
      }
      it = segment.blocks.empty() ? segments_.erase(it) : std::next(it);
    }
  }

  struct Totals {
    int64_t asked = 0, given = 0, reserved = 0, split = 0;
  };
  Totals totals() const {
    Totals totals;
    for (const auto& [key, segment] : segments_) {
      for (const auto& [address, block] : segment.blocks) {
        totals.reserved += block.bytes;
        if (block.used) {
          totals.asked += block.asked;
          totals.given += block.bytes;
        } else if (!expandable_ && segment.blocks.size() > 1) {
          totals.split += block.bytes;
        }
      }
    }
    return totals;
  }

  int64_t given(uint64_t address) const {
    for (const auto& [key, segment] : segments_) {
      const auto found = segment.blocks.find(address);
      if (found != segment.blocks.end()) return found->second.bytes;
    }
    return 0;
  }

 private:
  struct Block {
    int64_t bytes = 0;
    int64_t asked = 0;
    bool used = false;
  };
  using Blocks = std::map<uint64_t, Block>;
  struct Segment {
    uint16_t stream = 0;
    bool small = false;
    Blocks blocks;
  };

  int64_t returnable(const Segment& segment) const {
    const Block& last = segment.blocks.rbegin()->second;
    if (last.used) return 0;
    if (!expandable_) return segment.blocks.size() == 1 ? last.bytes : 0;
    const int64_t page = segment.small ? 2 << 20 : 20 << 20;
    return last.bytes / page * page;
  }

  std::pair<Blocks*, uint64_t> best_fit(int64_t bytes, bool small, uint16_t stream) {
    std::pair<Blocks*, uint64_t> best{nullptr, 0};
    int64_t best_bytes = INT64_MAX;
    for (auto& [key, segment] : segments_) {
      if (segment.stream != stream || segment.small != small) continue;
      for (const auto& [address, block] : segment.blocks) {
        if (block.used || block.bytes < bytes || block.bytes >= best_bytes) continue;
        best = {&segment.blocks, address};
        best_bytes = block.bytes;
      }
    }
    return best;
  }

  void grow(int64_t bytes, bool small, uint16_t stream) {
    if (expandable_) return expand(bytes, small, stream);
    int64_t size = small ? 2 << 20 : 20 << 20;
    if (bytes >= 10 << 20) size = (bytes + (2 << 20) - 1) / (2 << 20) * (2 << 20);
    // Placed one after another: neighbours in address are not neighbours in a segment.
    segments_[next_] = {stream, small, {{next_, Block{.bytes = size}}}};
    emit_segment(profiler::EventKind::alloc, next_, size, stream);
    next_ += static_cast<uint64_t>(size);
  }

  void expand(int64_t bytes, bool small, uint16_t stream) {
    const uint64_t key = (uint64_t{1} << 44) + (uint64_t{stream} << 41) + (uint64_t{small} << 40);
    Segment& segment = segments_.try_emplace(key, Segment{stream, small, {}}).first->second;
    uint64_t end = key;
    int64_t wanted = bytes;
    if (!segment.blocks.empty()) {
      const auto& [address, last] = *segment.blocks.rbegin();
      end = address + static_cast<uint64_t>(last.bytes);
      if (!last.used) wanted -= last.bytes;
    }
    const int64_t page = small ? 2 << 20 : 20 << 20;
    const int64_t size = (wanted + page - 1) / page * page;
    segment.blocks[end] = {.bytes = size};
    merge(segment.blocks);
    emit_segment(profiler::EventKind::alloc, end, size, stream);
  }

  void emit_segment(profiler::EventKind kind, uint64_t address, int64_t bytes, uint16_t stream) {
    take_({.address = address,
           .value = bytes,
           .label = expandable_ ? 1U : 0U,
           .stream = stream,
           .kind = kind,
           .space = profiler::Space::segment});
  }

  static void merge(Blocks& blocks) {
    for (auto it = blocks.begin(); it != blocks.end();) {
      const auto next = std::next(it);
      if (next == blocks.end()) return;
      if (it->second.used || next->second.used) {
        it = next;
        continue;
      }
      it->second.bytes += next->second.bytes;
      blocks.erase(next);
    }
  }

  bool expandable_;
  EventSink take_;
  std::map<uint64_t, Segment> segments_;
  uint64_t next_ = uint64_t{1} << 40;
};

}  // namespace shardlens::tests
