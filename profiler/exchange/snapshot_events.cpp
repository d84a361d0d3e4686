#include "profiler/exchange/snapshot_events.h"

#include <algorithm>
#include <map>
#include <stdexcept>
#include <unordered_map>
#include <unordered_set>

#include "profiler/recording/blocks.h"
#include "profiler/report/block_tracker.h"

namespace shardlens::profiler {

namespace {

constexpr size_t kMostStreams = 1 << 16;

bool is_return(TraceAction action) {
  return action == TraceAction::segment_free || action == TraceAction::segment_unmap;
}

class SnapshotWriter {
 public:
  explicit SnapshotWriter(uint32_t mapped_label) : mapped_label_(mapped_label) {}

  SnapshotEvents run(const SnapshotState& start, const std::vector<TraceEntry>& entries) {
    stream_of(0);
    for (const auto& [begin, range] : start.segments.ranges()) write_segment(begin, range);
    for (const auto& [address, block] : start.blocks) write_block(address, block);
    made_.start_allocated = tracker_.totals().allocated();
    made_.start_reserved = tracker_.totals().reserved;
    write_entries(entries);
    made_.allocated = tracker_.totals().allocated();
    made_.reserved = tracker_.totals().reserved;
    return std::move(made_);
  }

 private:
  /// The fields that the free of a living block repeats from its allocation.
  struct LiveBlock {
    int64_t bytes = 0;
    uint32_t label = 0;
    Category category = Category::other;
  };

  uint16_t stream_of(int64_t stream) {
    // Stream 0 is PyTorch's default stream, and Shardlens' main one.
    const auto [known, added] =
        streams_.try_emplace(stream, static_cast<uint16_t>(streams_.size()));
    if (streams_.size() > kMostStreams) throw std::invalid_argument("it has too many streams");
    return known->second;
  }

  void push(const Event& event) {
    made_.events.push_back(event);
    tracker_.take(event);
  }

  // --- the start ---------------------------------------------------------------------------------

  void write_segment(uint64_t begin, const SegmentRange& range) {
    const auto bytes = static_cast<int64_t>(range.end - begin);
    // The size of mapped memory tells the pool: small pages next to each other must not look large.
    const bool looks_large = bytes % page_bytes(Pool::large) == 0;
    const int64_t first =
        range.expandable && range.small && looks_large ? page_bytes(Pool::small) : bytes;
    write_range(begin, first, range);
    if (first < bytes) write_range(begin + static_cast<uint64_t>(first), bytes - first, range);
  }

  void write_range(uint64_t begin, int64_t bytes, const SegmentRange& range) {
    push({.address = begin,
          .value = bytes,
          .action = action_of_pool(range.private_pool),
          .label = range.expandable ? mapped_label_ : 0,
          .stream = stream_of(range.stream),
          .kind = EventKind::alloc,
          .space = Space::segment});
  }

  /// Writes a used block: [Note: held blocks].
  void write_block(uint64_t address, const SnapshotBlock& block) {
    if (tracker_.totals().reserved > 0) hold(address, block.given_bytes);
    if (block.is_pending) {
      held_.insert(address);
      return;
    }
    live_[address] = {.bytes = block.bytes, .label = block.label, .category = block.category};
    push_alloc({.address = address,
                .value = block.bytes,
                .label = block.label,
                .stream = stream_of(block.stream),
                .kind = EventKind::alloc,
                .space = Space::device,
                .category = block.category});
  }

  void hold(uint64_t address, int64_t given_bytes) {
    push({.time_ns = time_ns_, .address = address, .value = given_bytes, .kind = EventKind::hold});
  }

  /// Writes an allocation. It is misplaced if its place is a guess or outside the segments.
  void push_alloc(const Event& event, bool is_guess = false) {
    const int64_t unplaced = tracker_.totals().unplaced;
    push(event);
    if (tracker_.totals().reserved == 0) return;  // without segments no block has a place
    if (is_guess || tracker_.totals().unplaced > unplaced) ++made_.misplaced;
  }

  // --- the history -------------------------------------------------------------------------------

  void write_entries(const std::vector<TraceEntry>& entries) {
    int64_t now_us = made_.start_us = entries.empty() ? 0 : entries.front().time_us;
    for (const TraceEntry& entry : entries) {
      now_us = std::max(now_us, entry.time_us);
      time_ns_ = (now_us - made_.start_us) * 1000;
      if (!completes_free(entry)) write_entry(entry);
    }
    hold_freed();
  }

  /// True for the completion of a free that was requested before: [Note: held blocks].
  bool completes_free(const TraceEntry& entry) {
    const bool is_completion = entry.action == TraceAction::free_completed;
    if (is_completion && freed_ == entry.address) {
      freed_ = 0;
      return true;
    }
    hold_freed();
    if (!is_completion || held_.erase(entry.address) == 0) return false;
    push({.time_ns = time_ns_, .address = entry.address, .kind = EventKind::release});
    return true;
  }

  void hold_freed() {
    if (freed_ == 0) return;
    hold(freed_, 0);
    held_.insert(freed_);
    freed_ = 0;
  }

  void write_entry(const TraceEntry& entry) {
    switch (entry.action) {
      case TraceAction::alloc:
        return write_alloc(entry);
      case TraceAction::free_requested:
      case TraceAction::free_completed:
        return write_free(entry);
      case TraceAction::segment_alloc:
      case TraceAction::segment_map:
      case TraceAction::segment_free:
      case TraceAction::segment_unmap:
        return write_segment_entry(entry);
      case TraceAction::oom:
        return push(event_of(entry, EventKind::out_of_memory));
    }
  }

  Event event_of(const TraceEntry& entry, EventKind kind) {
    return {.time_ns = time_ns_,
            .address = entry.address,
            .value = entry.bytes,
            .label = entry.label,
            .stream = stream_of(entry.stream),
            .kind = kind,
            .category = entry.category};
  }

  void write_alloc(const TraceEntry& entry) {
    live_[entry.address] = {.bytes = entry.bytes, .label = entry.label, .category = entry.category};
    const bool is_guess = tracker_.totals().reserved > 0 && place(entry);
    push_alloc(event_of(entry, EventKind::alloc), is_guess);
  }

  /// Writes a hold before an allocation to which the rules of blocks.h give another place or size.
  /// Returns true if its size is a guess.
  bool place(const TraceEntry& entry) {
    const int64_t by_rules = tracker_.given_for(entry.address, entry.bytes);
    if (entry.given_bytes == 0 && by_rules != 0) return false;
    if (entry.given_bytes == 0) {
      hold(entry.address, rounded_request(entry.bytes));
      return true;
    }
    if (entry.given_bytes == by_rules) return false;
    if (!entry.says_size) ++made_.resized;
    hold(entry.address, entry.given_bytes);
    return false;
  }

  void write_free(const TraceEntry& entry) {
    const auto live = live_.find(entry.address);
    if (live == live_.end()) return;  // its free was requested before
    Event event = event_of(entry, EventKind::free);
    event.value = live->second.bytes;
    if (event.label == 0) event.label = live->second.label;
    event.category = live->second.category;
    live_.erase(live);
    if (entry.action == TraceAction::free_requested) freed_ = entry.address;
    push(event);
  }

  void write_segment_entry(const TraceEntry& entry) {
    Event event = event_of(entry, is_return(entry.action) ? EventKind::free : EventKind::alloc);
    event.space = Space::segment;
    event.category = Category::other;
    if (event.kind == EventKind::alloc) event.action = action_of_pool(entry.private_pool);
    event.label = is_mapping(entry.action) ? mapped_label_ : 0;
    push(event);
  }

  uint32_t mapped_label_;
  SnapshotEvents made_;
  BlockTracker tracker_;
  std::unordered_map<uint64_t, LiveBlock> live_;
  uint64_t freed_ = 0;  // address freed by the last entry; 0: it freed none
  std::unordered_set<uint64_t> held_;
  std::map<int64_t, uint16_t> streams_;
  int64_t time_ns_ = 0;
};

}  // namespace

SnapshotEvents snapshot_events(const SnapshotState& start, const std::vector<TraceEntry>& entries,
                               uint32_t mapped_label) {
  return SnapshotWriter(mapped_label).run(start, entries);
}

}  // namespace shardlens::profiler
